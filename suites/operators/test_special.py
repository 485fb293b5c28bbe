"""NaN, infinities and signed zeros go where they should."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("special")
def test_special(explore: Callable[[], None]) -> None:
    explore()
