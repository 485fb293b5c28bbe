"""The same call gives the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("determinism")
def test_determinism(explore: Callable[[], None]) -> None:
    explore()
