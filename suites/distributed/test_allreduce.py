"""Allreduce by every algorithm, and by the library itself: the sum, everywhere, at its price."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.collective("values")
def test_values(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("agreement")
def test_agreement(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("census")
def test_census(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("volume")
def test_volume(judge: Callable[[], None]) -> None:
    judge()
