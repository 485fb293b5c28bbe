"""The frozen cases on which accuracy is compared between versions, each forward and backward."""

from collections.abc import Callable


def test_corpus(gauge: Callable[[], None]) -> None:
    gauge()
