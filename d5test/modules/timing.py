"""Is a candidate faster than the reference, and than `torch.compile` of it?

Each runs in a process of its own, in turns. The clock is this process's, around requests of many
calls: what a candidate does to its own clock changes nothing. The results of timed calls are
compared with the reference's of the same inputs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from d5test.case import Array, Arrays, is_float
from d5test.client.client import WorkerClient
from d5test.metric import median_interval
from d5test.modules.bench import FAILED, WORKER, Bench
from d5test.modules.setting import OWN, Setting

REFERENCE, COMPILED, CANDIDATE = "reference", "torch.compile", "candidate"
FEEDS = 3
"""Inputs that are called in turn."""
ROUND, ROUNDS, FEW = 0.02, 21, 6
"""Seconds that a round takes at least, and rounds; fewer of long ones, which last `BUDGET`."""
BUDGET = 60.0
"""Seconds for the rounds of all arms."""
APART = 1e-2
"""By which share of its norm a timed result may differ from the reference's: beyond, it is another
function. How exact a candidate is was judged before, where bars could be computed."""


@dataclass(frozen=True)
class Times:
    """Seconds a call of each arm: the median, and its 95% confidence interval; why one has none.

    speedup   the median of the ratios of rounds side by side, by arm, and its interval
    attained  operations and bytes a second of the candidate, of those that the device reaches
    wrong     what the results of timed calls are, where they are not the reference's
    """

    seconds: Mapping[str, tuple[float, float, float]]
    missing: Mapping[str, str]
    speedup: Mapping[str, tuple[float, float, float]]
    attained: Mapping[str, float]
    wrong: str = ""

    def to_json(self) -> dict[str, Any]:
        """Builtins alone."""
        return asdict(self)


class _Arm:
    """One of those that are timed."""

    def __init__(self, client: WorkerClient, feeds: Sequence[Arrays]) -> None:
        self._client = client
        client.invoke(f"{WORKER}:prepare", [list(feed) for feed in feeds])
        self.call(FEEDS)
        self.loops = 1
        while (seconds := self.call(self.loops)) < ROUND / 2:
            self.loops *= 2
        self.expected = seconds / self.loops
        self.loops = ceil(ROUND / self.expected)
        self.seconds: list[float] = []

    def call(self, count: int) -> float:
        """Seconds of so many calls."""
        start = time.perf_counter()
        self._client.invoke(f"{WORKER}:call", count)
        return time.perf_counter() - start

    def round(self) -> None:
        """Seconds a call of one more round."""
        self.seconds.append(self.call(self.loops) / self.loops)

    def results(self) -> list[list[Array]]:
        """What the last timed call of each feed returned."""
        answers: list[list[Array]] = self._client.invoke(f"{WORKER}:results")
        return answers


def times(setting: Setting, path: Path, name: str, device: str) -> Times:
    """The times of a file's module, its reference, and that compiled."""
    source = setting.problem.path
    tensors = [i for i, t in enumerate(setting.case().inputs) if t and t.values[0] != "constant"]
    cases = [setting.case(OWN, k) for k in range(FEEDS)]
    feeds = [tuple(x for i, x in enumerate(case.arrays()) if i in tensors) for case in cases]
    arms: dict[str, _Arm] = {}
    missing: dict[str, str] = {}
    attained: dict[str, float] = {}
    with ExitStack() as stack:
        for arm, where, what, compiled in (
            (REFERENCE, source, "Model", False),
            (COMPILED, source, "Model", True),
            (CANDIDATE, path, name, False),
        ):
            bench = stack.enter_context(Bench(device))
            try:
                client = bench.client(setting, where, what, compiled=compiled)
                arms[arm] = _Arm(client, feeds)
                if arm == REFERENCE:
                    roofs = client.invoke(f"{WORKER}:roofs")
            except FAILED as error:
                missing[arm] = str(error).partition("\n")[0]
        lasts = sum(arm.loops * arm.expected for arm in arms.values())
        rounds = min(ROUNDS, max(FEW, int(BUDGET / lasts))) if arms else 0
        for k in range(rounds if CANDIDATE in arms and REFERENCE in arms else 0):
            for arm in list(arms) if k % 2 else list(arms)[::-1]:
                arms[arm].round()
        wrong = ""
        if CANDIDATE in arms and REFERENCE in arms:
            wrong = _difference(arms[REFERENCE].results(), arms[CANDIDATE].results())
            attained = _attained(setting, arms[CANDIDATE].seconds, roofs)
    seconds = {arm: _middle(a.seconds) for arm, a in arms.items() if a.seconds}
    own = np.array(arms[CANDIDATE].seconds) if CANDIDATE in arms else np.ones(0)
    speedup = {
        arm: _middle((np.array(a.seconds) / own).tolist())
        for arm, a in arms.items()
        if arm != CANDIDATE and a.seconds and own.size
    }
    return Times(seconds, missing, speedup, attained, wrong)


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    low, high = median_interval(values) or (min(values), max(values))
    return float(np.median(values)), low, high


def _attained(
    setting: Setting, seconds: Sequence[float], roofs: tuple[float, float]
) -> dict[str, float]:
    """What a call does a second, and which share that is of what the device can do at most."""
    cost, (operations, copied) = setting.problem.cost(), roofs
    second = float(np.median(seconds))
    item = (
        2 if setting.dtype in ("float16", "bfloat16") else 4 if setting.dtype == "float32" else 8
    )
    least = max(cost.operations / operations, item * cost.elements / copied)
    return {
        "operations": cost.operations / second,
        "bytes": item * cost.elements / second,
        "roof of operations": operations,
        "roof of bytes": copied,
        "share of the roofline": least / second,
    }


def _difference(expected: Sequence[Sequence[Array]], got: Sequence[Sequence[Array]]) -> str:
    """What is wrong with timed results; empty if nothing is."""
    for feed, (want, have) in enumerate(zip(expected, got, strict=True)):
        if [y.shape for y in want] != [y.shape for y in have]:
            return (
                f"a timed call returned {[y.shape for y in have]}, not {[y.shape for y in want]}"
            )
        for k, (y, z) in enumerate(zip(want, have, strict=True)):
            if not is_float(y.dtype.name):
                if not np.array_equal(y, z):
                    return f"result {k} of timed input {feed} is not the reference's"
                continue
            y, z = y.astype(np.float64), z.astype(np.float64)
            both = np.isfinite(y)
            apart = float(np.linalg.norm((y - z)[both]))
            size = float(np.linalg.norm(y[both]))
            if not apart <= APART * size or not np.array_equal(np.isnan(y), np.isnan(z)):
                share = f"{apart / size:.2g} of its norm" if size else "where that is zero"
                return f"result {k} of timed input {feed} is off by {share}"
    return ""
