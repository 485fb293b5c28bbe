"""Hypothesis here draws the same examples on every machine, and waits for slow ones."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile(
    "tests", database=None, deadline=None, derandomize=True, print_blob=False
)
settings.load_profile("tests")
