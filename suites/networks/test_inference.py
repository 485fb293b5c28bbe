"""The outputs of each network lie within the spread of honest references."""

from __future__ import annotations

from collections.abc import Callable


def test_inference(judge_inference: Callable[[], None]) -> None:
    judge_inference()
