"""How long the problems take, forward and backward, with their outputs verified."""

from __future__ import annotations

from collections.abc import Callable


def test_time(stopwatch: Callable[[], None]) -> None:
    stopwatch()
