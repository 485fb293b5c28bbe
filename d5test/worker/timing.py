"""Timing inside the worker: rounds of a frozen number of calls, the device waited for in time.

Rows are planned and arguments bound beforehand, so that a call is the framework's call behind a
partial. The last call of each feed is kept: what was timed can be verified.
"""

import gc
import math
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from d5test.worker import machine
from d5test.worker.bound import BadRow
from d5test.worker.execution import Execution, Placed

ROUND = 0.005
"""Seconds that a round lasts at least: 10^4 times what the clock and a pre-emption check cost."""
CALIBRATIONS = 5
"""How many rounds of a length are timed while it is looked for; the fastest counts."""
MOST, LONGEST = 64, 160
"""Names of kernels that are told of a call, and characters of each."""
COLD_BYTES = 64 << 20
Call = Callable[[], Any]


class Rounds:
    """Calls in turn, `loops` of them a round; 1 if `cold`. `last` has the last result of each.

    The first call after a pause takes 10 to 20 us more: unless calls are long or `cold`, one is
    made before the clock starts, so that a call takes as long in short rounds as in long ones.
    """

    def __init__(
        self,
        execution: Execution,
        calls: Sequence[Call],
        backward: bool,
        cold: bool,
        loops: int | None,
    ) -> None:
        self._execution = execution
        self._backward = backward
        self._backend = execution.backend
        ordered = self._backend.ordered
        self._calls = [call if ordered else partial(self._waited, call) for call in calls]
        self.last: list[Any] = [None] * len(calls)
        self._next = 0
        size = max(COLD_BYTES, 2 * machine.largest_cache())
        self._written = np.zeros(size // 4, np.float32) if cold else None
        machine.keep()
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
        machine.reset_peak()
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
        if self._written is not None:  # more than the caches hold: nothing is found there
            self._written += 1
            if self._backend.device != "cpu":
                self._backend.wait([self._backend.put(self._written, "float32")])
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

    def stop(self) -> tuple[list[Any], int | None, int, tuple[str, ...]]:
        """Outputs and gradients of the last of each call, peak device and resident bytes, kernels.

        The kernels are those of a further call, which no clock and no peak sees.
        """
        device, resident = self._backend.peak_memory(), machine.peak_resident()
        answers: list[Any] = []
        get = self._execution.maybe_get
        for k, last in enumerate(self.last):
            outputs, gradients = self._results(k, *(last if self._backward else (last, None)))
            slopes = None if gradients is None else [get(dx) for dx in gradients]
            answers.append(([get(y) for y in outputs], slopes))
        return answers, device, resident, self._kernels()

    def _kernels(self) -> tuple[str, ...]:
        """The names of what runs in a call; none where nobody knows."""
        return ()

    def _results(self, k: int, outputs: Any, gradients: Any) -> tuple[Any, Any]:
        """What call `k` returned. Raises `BadRow` where nothing may return it."""
        return outputs, gradients

    def _waited(self, call: Call) -> Any:
        result = call()
        self._wait([result])
        return result

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
        name: str,
        attributes: dict[str, Any],
        feeds: Sequence[Any],
        wanted: Sequence[int] | None,
        backward: bool,
        cold: bool,
        loops: int | None,
    ) -> None:
        self._bound = execution.bind(name, attributes)
        self._placed = [Placed(feed) for feed in feeds]
        for now in self._placed:
            execution.place(now)
        execution.where = "call"
        self._roots = [now.wanted(wanted) for now in self._placed]
        self._differentiated = backward
        pairs = zip(self._placed, self._roots, strict=True)
        calls = [self._call(now, roots, backward) for now, roots in pairs]
        super().__init__(execution, calls, backward, cold, loops)

    def _kernels(self) -> tuple[str, ...]:
        now, roots = self._placed[0], self._roots[0]
        backend, inputs = self._backend, [now.tensors[i] for i in now.distinct]
        function = self._bound.folded(self._bound.ready(now.tensors), now.places)
        if self._differentiated:
            wanted = [now.distinct.index(root) for root in roots]
            upstream, forward = now.upstream[: self._bound.row.outputs], function

            def function(*tensors: Any) -> Any:
                return backend.vjp(forward, tensors, upstream, wanted)

        try:
            names = [str(name)[:LONGEST] for name in backend.kernel_names(function, inputs)]
        except Exception as error:  # noqa: BLE001 (nothing is decided upon names)
            print(f"no kernels of {self._bound.op.name}: {type(error).__name__}: {error}")
            return ()
        return tuple(names[:MOST])

    def _results(self, k: int, outputs: Any, gradients: Any) -> tuple[Any, Any]:
        outputs = self._execution.outputs(self._bound, outputs)
        if gradients is not None:
            count, roots = len(self._placed[k].inputs), self._roots[k]
            gradients = self._execution.gradients(self._bound, gradients, roots, count)
        return outputs, gradients

    def _call(self, now: Placed, roots: list[int], backward: bool) -> Call:
        ready = self._bound.ready(now.tensors)
        if not backward:
            return partial(ready, *now.tensors)
        if now.grads is None:
            raise BadRow("to time the gradient a feed needs upstream gradients")
        return now.pull(self._bound, ready, roots)
