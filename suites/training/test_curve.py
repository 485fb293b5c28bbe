"""From the same initial parameters the first losses are those of the references."""

from __future__ import annotations

from collections.abc import Callable


def test_curve(judge_curve: Callable[[], None]) -> None:
    judge_curve()
