"""One step of the framework's own optimizer, parameter and state, lies within the bars."""

from __future__ import annotations

from collections.abc import Callable


def test_step(judge_step: Callable[[], None]) -> None:
    judge_step()
