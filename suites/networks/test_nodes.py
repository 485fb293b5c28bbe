"""Each node, on what the backend gave it, lies within its reference's error bars."""

from __future__ import annotations

from collections.abc import Callable


def test_nodes(judge_nodes: Callable[[], None]) -> None:
    judge_nodes()
