"""How long networks take, forward and backward, with their results verified."""

from __future__ import annotations

from collections.abc import Callable


def test_time(network_stopwatch: Callable[[], None]) -> None:
    network_stopwatch()
