"""The Hypothesis profile `d5test`, for tests beside the suites, unless the user chose one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile."""
    settings.register_profile("d5test", database=None, deadline=None, print_blob=False)
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("d5test")
