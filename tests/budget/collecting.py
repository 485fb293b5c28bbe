"""`pytest --collect-only` of the suite with torch, over importing torch: processes, whole."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.budget.measure import AGAIN, OURS, THEIRS, Line, in_turn, readable

BOUND = 1.5
ROOT = Path(__file__).parents[2]
ROUNDS = 6
COLLECT = (
    "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider",
    str(ROOT / "suites" / "operators"), "--backend=torch",
)  # fmt: skip
IMPORT = ("-c", "import torch")


def lines() -> Iterator[Line]:
    """Wall time has the bound; CPU time tells what a busy machine hides."""
    spent: dict[str, list[float]] = {OURS: [], THEIRS: [], AGAIN: []}
    arms = {
        name: process(COLLECT if name == OURS else IMPORT, spent[name].append) for name in spent
    }
    wall = in_turn(arms, rounds=ROUNDS, seconds=40.0, least=3)
    cpu = {name: np.array(values[1:]) for name, values in spent.items()}
    for what, bound, times in (("wall", BOUND, wall), ("CPU", None, cpu)):
        over, same = times[OURS] - times[THEIRS], times[AGAIN] - times[THEIRS]
        context = f"{len(over)} pairs, {readable(times[OURS])} against {readable(times[THEIRS])}"
        yield Line(
            f"pytest --collect-only suites/operators, {what} time over importing torch",
            "s", tuple(over), tuple(same), bound, context,
        )  # fmt: skip


def process(arguments: Sequence[str], spent: Callable[[float], None]) -> Callable[[], float]:
    """Seconds from start to end of a Python with these arguments; its CPU time goes to `spent`."""

    def run() -> float:
        before, start = _used(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        wall = time.perf_counter() - start
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr}")
        spent(_used() - before)
        return wall

    return run


def _used() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
