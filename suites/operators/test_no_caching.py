"""Other values, at the same address or another, give other results."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("no_caching")
def test_no_caching(explore: Callable[[], None]) -> None:
    explore()
