"""Compiled equals eager, and was compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("compiled")
def test_compiled(explore: Callable[[], None]) -> None:
    explore()
