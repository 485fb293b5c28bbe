"""How long networks take, forward and backward, with their results verified."""

from collections.abc import Callable


def test_time(network_stopwatch: Callable[[], None]) -> None:
    network_stopwatch()
