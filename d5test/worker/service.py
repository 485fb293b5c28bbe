"""The requests that a worker understands, by name, and how each is answered.

An answer is `("ok", value)`, `("unsupported", reason)` or `("raised", type, text, traceback,
where, place)`; `"refused"` in place of `"unsupported"` if the framework raised what means so,
`"lost"` in place of `"raised"` if nothing works here any more. The backend is made by the first
request. NumPy and the framework only.
"""

import contextlib
import importlib
import io
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from d5test.backends.base import Backend, Unsupported
from d5test.backends.updater import with_own_rules
from d5test.worker import machine, wire
from d5test.worker.breakpoints import Breakpoints
from d5test.worker.execution import Execution
from d5test.worker.facts import describe
from d5test.worker.programs import Programs
from d5test.worker.recorder import record
from d5test.worker.repeated import repeated
from d5test.worker.timing import Rounds, Timing
from d5test.worker.training import Trainings

TF32 = "D5TEST_TF32"
"""The variable by which a worker is told to allow TF32."""


def run_script(_: object, path: str, folder: str) -> tuple[int, str] | None:
    """The exit status of a reproducer that runs here, where its framework is imported already, and
    what it printed. The worker is not fit for more.

    `None`: it says nothing, for it may need what is found here in the backend's folder.
    """
    printed, status = io.StringIO(), 2
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            status = int(end.code or 0)
    return None if folder and imported_from(folder) else (status, printed.getvalue())


def imported_from(folder: str) -> bool:
    """Whether a module was imported from a folder by its own name, d5test apart."""
    return any(
        getattr(module, "__file__", None)
        in (os.path.join(folder, f"{name}.py"), os.path.join(folder, name, "__init__.py"))
        for name, module in list(sys.modules.items())
        if name != "d5test"
    )


def on_device(make: Callable[[str], Backend], device: str) -> Backend:
    """A backend on this device; on its default one where none was asked for."""
    return make(device or getattr(make, "default_device", Backend.default_device))


class Service:
    """One backend, and what is asked of it."""

    def __init__(self, make: Callable[[], Backend]) -> None:
        self._make = make
        self._execution: Execution | None = None
        self._timing: Rounds | None = None
        self._breakpoints: Breakpoints | None = None
        self._requests: Mapping[str, Callable[..., Any]] = {
            "describe": lambda: describe(self.execution),
            "run": lambda *request: self.execution.run(*request),
            "repeat": lambda *request: repeated(self.execution, *request),
            "compilations": lambda: self.execution.compilations(),
            "reset": lambda: self.execution.reset(),
            "record": lambda *request: record(self.execution.backend, *request),
            "network": lambda *request: self.programs.answer(*request),
            "training": lambda *request: self.trainings.answer(*request),
            "start_timing": lambda *request: self.start(Timing, self.execution, *request),
            "start_network_timing": lambda *request: self.start(self.programs.timing, *request),
            "time_round": lambda: self.timing.round(),
            "stop_timing": self.stop_timing,
            "breakpoints": self.answer_breakpoints,
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
            machine.poison()
        return self._execution

    @cached_property
    def programs(self) -> Programs:
        """The networks that are loaded."""
        return Programs(self.execution)

    @cached_property
    def trainings(self) -> Trainings:
        """The networks in training."""
        return Trainings(self.execution.backend)

    def answer(self, request: Sequence[Any]) -> tuple[Any, ...]:
        """The answer to `(verb, *arguments)`; whatever is raised is an answer too.

        But for `KeyboardInterrupt`, by which a user ends what runs in this process.
        """
        verb, *arguments = request
        try:
            if self._execution is not None:
                self._execution.where = verb
            return "ok", self._requests[verb](*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (SystemExit too: it must not end us)
            if self._execution is None:
                if isinstance(error, Unsupported):
                    return "unsupported", str(error)
                return "raised", type(error).__name__, str(error), "", "making the backend", ""
            return self._execution.failure(error)

    def reply(self, request: Sequence[Any]) -> bytes:
        """The answer as it travels. One that cannot travel is an exception of who answered."""
        answer = self.answer(request)
        try:
            return wire.dumps(answer)
        except Exception as error:  # noqa: BLE001 (pickle's, or that of what was to be pickled)
            return wire.dumps(("raised", type(error).__name__, str(error), "", "answer", ""))

    def start(self, make: Callable[..., Rounds], *request: Any) -> int:
        """Make everything ready and warm; how many calls make a round."""
        self._timing = None  # its tensors are given back
        self._timing = make(*request)
        return self._timing.loops

    def stop_timing(self) -> Any:
        """See `Rounds.stop`; its tensors are given back."""
        timing, self._timing = self.timing, None
        machine.poison()
        return timing.stop()

    @property
    def timing(self) -> Rounds:
        """What was started."""
        if self._timing is None:
            raise RuntimeError("no timing was started")
        return self._timing

    def answer_breakpoints(self, library: str, verb: str, *arguments: Any) -> Any:
        """What a verb of `Breakpoints` answers; `None` where they were not armed before."""
        if self._breakpoints is None:
            if verb != "arm":
                return None
            self._breakpoints = Breakpoints(self.execution.backend, library)
            self.execution.around = self._breakpoints.watching
        return self._breakpoints.answer(verb, *arguments)

    def invoke(self, target: str, arguments: Sequence[Any]) -> Any:
        """Call `module:function` with the backend and builtins: a network, a training loop."""
        module, _, name = target.rpartition(":")
        function = getattr(importlib.import_module(module), name)
        return function(self.execution.backend, *arguments)
