"""Models that others made have the outputs that came with them."""

from __future__ import annotations

from collections.abc import Callable


def test_models(judge_model: Callable[[], None]) -> None:
    judge_model()
