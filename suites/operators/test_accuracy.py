"""Elementary functions are right on all numbers of 16 bits, strata of the others, and on pairs."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.check("accuracy")
def test_accuracy(explore: Callable[[], None]) -> None:
    explore()
