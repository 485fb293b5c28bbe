"""16-bit results lie within the bars of the tightest class of arithmetic that holds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("low_precision")
def test_low_precision(explore: Callable[[], None]) -> None:
    explore()
