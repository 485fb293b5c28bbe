"""Distributed optimizers over any base optimizer: what a step is, who has seen whose gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.collective("one_step")
def test_one_step(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("sequential")
def test_sequential(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("replicas")
def test_replicas(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("staleness")
def test_staleness(judge: Callable[[], None]) -> None:
    judge()


@pytest.mark.collective("traffic")
def test_traffic(judge: Callable[[], None]) -> None:
    judge()
