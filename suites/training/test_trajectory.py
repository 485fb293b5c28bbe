"""A hundred steps of an optimizer stay within the spread of noisy references."""

from __future__ import annotations

from collections.abc import Callable


def test_trajectory(judge_trajectory: Callable[[], None]) -> None:
    judge_trajectory()
