"""The requests that a worker understands, by name, and how each is answered.

An answer is `("ok", value)`, `("unsupported", reason)` or `("raised", type, text, traceback,
where)`. The backend is made by the first request. NumPy and the framework only.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from d5test.backends.base import Backend, Unsupported
from d5test.backends.updater import with_own_rules
from d5test.worker import heap, wire
from d5test.worker.execution import Execution
from d5test.worker.facts import describe
from d5test.worker.programs import Programs
from d5test.worker.recorder import record
from d5test.worker.timing import Rounds, Timing
from d5test.worker.training import Trainings

TF32 = "D5TEST_TF32"
"""The variable by which a worker is told to allow TF32."""


class Service:
    """One backend, and what is asked of it."""

    def __init__(self, make: Callable[[], Backend]) -> None:
        self._make = make
        self._execution: Execution | None = None
        self._programs: Programs | None = None
        self._trainings: Trainings | None = None
        self._timing: Rounds | None = None
        self._verbs: Mapping[str, Callable[..., Any]] = {
            "describe": lambda: describe(self.execution),
            "run": lambda *request: self.execution.run(*request),
            "compilations": lambda: self.execution.compilations(),
            "reset": lambda: self.execution.reset(),
            "record": lambda *request: record(self.execution.backend, *request),
            "network": lambda *request: self.programs.answer(*request),
            "training": lambda *request: self.trainings.answer(*request),
            "start_timing": self.start_timing,
            "start_network_timing": self.start_network_timing,
            "time_round": self.time_round,
            "stop_timing": self.stop_timing,
            "invoke": self.invoke,
        }

    @property
    def execution(self) -> Execution:
        """The backend, made when it is first needed."""
        if self._execution is None:
            backend = with_own_rules(self._make())
            if TF32 in os.environ:
                backend.allow_tf32()
            self._execution = Execution(backend)
            heap.poison()
        return self._execution

    @property
    def programs(self) -> Programs:
        """The networks that are loaded."""
        if self._programs is None:
            self._programs = Programs(self.execution)
        return self._programs

    @property
    def trainings(self) -> Trainings:
        """The networks in training."""
        if self._trainings is None:
            self._trainings = Trainings(self.execution.backend)
        return self._trainings

    def answer(self, request: Sequence[Any]) -> tuple[Any, ...]:
        """The answer to `(verb, *arguments)`; whatever is raised is an answer too."""
        verb, *arguments = request
        try:
            if self._execution is not None:
                self._execution.where = verb
            return "ok", self._verbs[verb](*arguments)
        except BaseException as error:  # noqa: BLE001 (SystemExit too: it must not end us)
            if self._execution is None:
                if isinstance(error, Unsupported):
                    return "unsupported", str(error)
                return "raised", type(error).__name__, str(error), "", "making the backend"
            return self._execution.failure(error)

    def reply(self, request: Sequence[Any]) -> bytes:
        """The answer as it travels. One that cannot travel is an exception of who answered."""
        answer = self.answer(request)
        try:
            return wire.dumps(answer)
        except Exception as error:  # noqa: BLE001 (pickle's, or that of what was to be pickled)
            return wire.dumps(("raised", type(error).__name__, str(error), "", "answer"))

    def start_timing(
        self,
        name: str,
        attributes: dict[str, Any],
        feeds: Sequence[Any],
        wanted: Sequence[int] | None,
        backward: bool,
        cold: bool,
        loops: int | None,
    ) -> int:
        """Make everything ready and warm; how many calls make a round."""
        self._timing = None
        bound = self.execution.bind(name, attributes)
        self._timing = Timing(
            self.execution, bound, feeds, wanted, backward=backward, cold=cold, loops=loops
        )
        return self._timing.loops

    def start_network_timing(self, *request: Any) -> int:
        """As `start_timing`, of a network; see `Programs.timing`."""
        self._timing = None
        self._timing = self.programs.timing(*request)
        return self._timing.loops

    def time_round(self) -> tuple[float, float, int]:
        """See `Rounds.round`."""
        return self.timing.round()

    def stop_timing(self) -> Any:
        """See `Rounds.stop`; its tensors are given back."""
        timing, self._timing = self.timing, None
        heap.poison()
        return timing.stop()

    @property
    def timing(self) -> Rounds:
        """What was started."""
        if self._timing is None:
            raise RuntimeError("no timing was started")
        return self._timing

    def invoke(self, target: str, arguments: Sequence[Any]) -> Any:
        """Call `module:function` with the backend and builtins: a network, a training loop."""
        module, _, name = target.rpartition(":")
        function = getattr(importlib.import_module(module), name)
        return function(self.execution.backend, *arguments)
