"""What each rank has to say at one stage of the run, told to all.

Requirements: costs one byte a rank where nobody has anything to say; never waits for ever for a
rank that is at another stage, but says which; a rank that waits leaves its core to the others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

STAGES = ("collection", "start", "setup", "call", "example", "teardown", "end")
SHORTEST, LONGEST = 1e-5, 2e-3
"""Seconds between polls: each twice the one before."""


class Apart(Exception):
    """The ranks are at different stages of the run, and cannot come together again.

    stages  of each rank
    """

    def __init__(self, stages: tuple[str, ...]) -> None:
        self.stages = stages
        told = ", ".join(f"rank {rank}: {stage}" for rank, stage in enumerate(stages))
        super().__init__(f"the ranks are at different stages of the run ({told})")


@dataclass(frozen=True)
class Agreement:
    """A communicator of its own, on which every rank says the same number of things."""

    comm: Any

    def exchange(
        self, stage: str, remark: Mapping[str, Any] | None
    ) -> list[dict[str, Any] | None] | None:
        """The remarks of all ranks; `None` if there is none. Raises `Apart`, at all ranks."""
        mine = np.array([2 * STAGES.index(stage) + (remark is not None)], np.uint8)
        every = np.empty(self.comm.size, np.uint8)
        _wait(self.comm.Iallgather(mine, every))
        stages = tuple(STAGES[code // 2] for code in every)
        if len(set(stages)) > 1:
            raise Apart(stages)
        return self._remarks(remark) if (every % 2).any() else None

    def _remarks(self, remark: Mapping[str, Any] | None) -> list[dict[str, Any] | None]:
        text = np.frombuffer(json.dumps(remark).encode(), np.uint8)
        sizes = np.empty(self.comm.size, np.int64)
        _wait(self.comm.Iallgather(np.array([text.size], np.int64), sizes))
        every = np.empty(sizes.sum(), np.uint8)
        _wait(self.comm.Iallgatherv(text, [every, sizes]))
        parts = np.split(every, np.cumsum(sizes)[:-1])
        return [json.loads(part.tobytes()) for part in parts]


def _wait(request: Any) -> None:
    pause = SHORTEST
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)
