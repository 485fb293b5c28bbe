"""How long the problems take, forward and backward, with their outputs verified."""

from collections.abc import Callable


def test_time(stopwatch: Callable[[], None]) -> None:
    stopwatch()
