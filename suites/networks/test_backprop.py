"""The gradient of each parameter lies within the spread of honest references."""

from __future__ import annotations

from collections.abc import Callable


def test_backprop(judge_backprop: Callable[[], None]) -> None:
    judge_backprop()
