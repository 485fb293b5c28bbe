"""Timing inside the worker: rounds of a frozen number of calls, the device waited for in time.

Rows are planned and arguments bound beforehand, so that a call is the framework's call behind a
partial. The last call of each feed is kept: what was timed can be verified.
"""

from __future__ import annotations

import gc
import math
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from d5test.backends.base import Backend
from d5test.worker import heap
from d5test.worker.bound import BadRow, Bound
from d5test.worker.execution import Execution, Placed

ROUND = 0.005
"""Seconds that a round lasts at least: 10^4 times what the clock and a pre-emption check cost."""
CALIBRATIONS = 5
"""How many rounds of a length are timed while it is looked for; the fastest counts."""
COLD_BYTES = 64 << 20
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
Call = Callable[[], Any]


class Rounds:
    """Calls in turn, `loops` of them a round; 1 if `cold`. `last` has the last result of each.

    The first call after a pause takes 10 to 20 us more: unless calls are long or `cold`, one is
    made before the clock starts, so that a call takes as long in short rounds as in long ones.
    """

    def __init__(
        self, execution: Execution, calls: Sequence[Call], *, cold: bool, loops: int | None
    ) -> None:
        self._execution = execution
        self._backend = execution.backend
        ordered = self._backend.ordered
        self._calls = [call if ordered else self._waiting(call) for call in calls]
        self.last: list[Any] = [None] * len(calls)
        self._next = 0
        self._flush = Flush(self._backend) if cold else None
        heap.keep()
        execution.where = "call"
        begun = 0.0
        for _ in range(2):
            begun = time.perf_counter()
            for k in range(len(calls)):
                self.last[k] = self._calls[k]()
                self._wait([self.last[k]])
        brief = time.perf_counter() - begun < ROUND * len(calls)
        self._warm = brief and not cold
        self.loops = loops or (1 if cold else self._calibrated())
        reset_peak()
        self._backend.peak_memory()

    def round(self) -> tuple[float, float, int]:
        """Wall and CPU seconds a call, and how often the round was pre-empted."""
        self._execution.where = "call"
        turns = len(self._calls)
        tail = min(self.loops, turns)
        first, head = self._next, self.loops - tail
        order = [self._calls[(first + k) % turns] for k in range(min(turns, head))]
        calls = (order * math.ceil(head / turns))[:head]
        last = [(first + head + k) % turns for k in range(tail)]
        ending = [self._calls[k] for k in last]
        self._next = (first + self.loops) % turns
        for k in last:
            self.last[k] = None
        if self._flush is not None:
            self._flush()
        if self._warm:
            self._wait([self._calls[first - 1]()])
        collecting = gc.isenabled()
        gc.disable()
        try:
            results, wall, cpu, switches = self._timed(calls, ending)
        finally:
            if collecting:
                gc.enable()
        for k, result in zip(last, results, strict=True):
            self.last[k] = result
        return wall / self.loops, cpu / self.loops, switches

    def stop(self) -> tuple[list[Any], int | None, int]:
        """Outputs and gradients of the last of each call, peak device and resident bytes."""
        device, resident = self._backend.peak_memory(), peak_resident()
        return self.answers(), device, resident

    def answers(self) -> list[Any]:
        """What the last of each call returned, as it travels."""
        raise NotImplementedError

    def _waiting(self, call: Call) -> Call:
        def waiting() -> Any:
            result = call()
            self._wait([result])
            return result

        return waiting

    def _wait(self, results: Sequence[Any]) -> None:
        flat: list[Any] = []
        for result in results:
            parts = result if isinstance(result, (tuple, list)) else (result,)
            for part in parts:
                flat.extend(part if isinstance(part, (tuple, list)) else (part,))
        self._backend.wait([t for t in flat if t is not None])

    def _timed(
        self, calls: Sequence[Call], ending: Sequence[Call]
    ) -> tuple[list[Any], float, float, int]:
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        cpu = time.process_time()
        start = time.perf_counter()
        for call in calls:
            call()
        results = [call() for call in ending]
        self._wait(results)
        wall = time.perf_counter() - start
        cpu = time.process_time() - cpu
        return results, wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches

    def _calibrated(self) -> int:
        """As many calls as last `ROUND` seconds, in whole turns over the feeds."""
        turns, count = len(self._calls), 1
        while True:
            calls = (self._calls * math.ceil(count / turns))[:count]
            wall = min(self._timed(calls[:-1], calls[-1:])[1] for _ in range(CALIBRATIONS))
            if wall >= ROUND / 4:
                break
            count *= 2
        loops = max(1, math.ceil(ROUND * count / wall))
        return loops if loops < turns else math.ceil(loops / turns) * turns


class Timing(Rounds):
    """An operator on several feeds, called in turn."""

    def __init__(
        self,
        execution: Execution,
        bound: Bound,
        feeds: Sequence[Any],
        wanted: Sequence[int] | None,
        *,
        backward: bool,
        cold: bool,
        loops: int | None,
    ) -> None:
        self._bound = bound
        self._placed = [Placed(feed) for feed in feeds]
        for now in self._placed:
            execution.place(now)
        execution.where = "call"
        self._roots = [now.aliases.wanted(now.inputs, wanted) for now in self._placed]
        self._backward = backward
        calls = [
            self._call(execution.backend, *pair)
            for pair in zip(self._placed, self._roots, strict=True)
        ]
        super().__init__(execution, calls, cold=cold, loops=loops)

    def answers(self) -> list[Any]:
        """Outputs and gradients of the last call of each feed."""
        answers = []
        for now, roots, last in zip(self._placed, self._roots, self.last, strict=True):
            results, found = last if self._backward else (last, None)
            outputs = self._execution.outputs(self._bound, results)
            gradients = None
            if found is not None:
                every = self._execution.gradients(self._bound, found, roots, len(now.inputs))
                gradients = [self._execution.maybe_get(dx) for dx in every]
            answers.append(([self._execution.get(y) for y in outputs], gradients))
        return answers

    def _call(self, backend: Backend, now: Placed, roots: list[int]) -> Call:
        ready = self._bound.ready(now.tensors)
        if not self._backward:
            return partial(ready, *now.tensors)
        if now.grads is None:
            raise BadRow("to time the gradient a feed needs upstream gradients")
        distinct = now.aliases.distinct
        return partial(
            backend.vjp,
            self._bound.folded(ready, now.aliases.places),
            [now.tensors[i] for i in distinct],
            now.upstream[: self._bound.row.outputs],
            [distinct.index(root) for root in roots],
        )


class Flush:
    """Writes more than the caches hold, so that the next call finds nothing there."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._buffer = np.zeros(max(COLD_BYTES, 2 * largest_cache()) // 4, np.float32)

    def __call__(self) -> None:
        """Write it all, and on the device as much."""
        self._buffer += 1
        if self._backend.device != "cpu":
            self._backend.wait([self._backend.put(self._buffer, "float32")])


def largest_cache() -> int:
    """Bytes of the largest cache of the CPU, 0 where the system does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * units.get(size[-1], 1) for size in sizes), default=0)


def reset_peak() -> None:
    """Count the resident memory's peak from now on, where the system lets us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_resident() -> int:
    """Bytes of resident memory used at most: since `reset_peak` on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next((int(s.split()[1]) * 1024 for s in lines if s.startswith("VmHWM:")), 0)
