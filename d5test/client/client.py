"""The front of a backend: what d5test asks of it, wherever it runs.

`WorkerClient` asks a worker process; `InProcessClient` asks the same in this one.
"""

import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Operator
from d5test.client.history import History
from d5test.client.messages import (
    TO_A_ROW,
    Advice,
    BackendFailed,
    BackendInfo,
    Calls,
    Crashed,
    Extremes,
    Feed,
    Hung,
    Raised,
    Refused,
    Result,
    Round,
    Timed,
    UnknownBackend,
    plain,
    plain_feed,
    typed,
)
from d5test.client.process import Launch, WorkerProcess
from d5test.client.registry import Spec, resolve
from d5test.known.failure import Known
from d5test.worker import wire, worker

MOST_MEMORY = 2 << 30
"""Bytes that a worker may grow by: what is compiled and cached is never given back, and several
workers share a machine. The tensors of a case take a few MiB."""

UNSUPPORTED = {"unsupported": Unsupported, "refused": Refused}
"""What answers mean."""
Meanwhile = Callable[[], object] | None
"""What is done once a process of the backend's own has the request, beside it."""


class BackendClient(ABC):
    """A backend that can be asked. One request at a time.

    Every request raises `Unsupported` or `Raised`; from a process also `BackendFailed`, `Crashed`
    and `Hung`, after which the next request finds a fresh worker. A timing that was under way is
    lost then.
    """

    name: str
    precision: str | None = None
    """The lower precision that multiplications are allowed: `tf32`."""
    known: Known = Known()
    """What is known to be wrong with it."""
    advice: Advice = TO_A_ROW
    """What is said to whoever wrote what is called."""
    _about: BackendInfo | None = None

    @cached_property
    def history(self) -> History:
        """The calls since the backend was fresh."""
        return History()

    @abstractmethod
    def _answer(self, request: tuple[Any, ...], meanwhile: Meanwhile = None) -> tuple[Any, ...]:
        """The answer of `d5test.worker.service`."""

    def ask(self, verb: str, *arguments: Any, meanwhile: Meanwhile = None) -> Any:
        """What a verb of `d5test.worker.service` answers."""
        answer = self._answer((verb, *arguments), meanwhile)
        if answer[0] == "ok":
            return answer[1]
        what, *words = answer
        if what in UNSUPPORTED:
            raise UNSUPPORTED[what](*words)
        raise Raised(*words)

    @property
    def about(self) -> BackendInfo:
        """What the backend is; asked once. One client does not wait for another's answer."""
        if self._about is None:
            self._about = BackendInfo.of(self.name, self.ask("describe"))
        return self._about

    def named(self, name: str) -> None:
        """Call the backend something else, and ask it anew what it is."""
        self.name, self._about = name, None

    def run(
        self,
        op: Operator,
        feeds: Sequence[Feed],
        *,
        wanted: Sequence[int] | None = None,
        reuse: bool = False,
        form: str = "",
        ours: bool = False,
        meanwhile: Meanwhile = None,
    ) -> list[Result]:
        """The operator's results on each feed, one after the other, in one request.

        wanted     positions of the inputs whose gradients are wanted; all floating-point ones.
        reuse      write each feed into the tensors of the one before, if the backend is mutable.
        form       which of the backend's forms computes it; empty: its row.
        ours       by the row of d5test's that the backend's replaces; without one `Unsupported`.
        meanwhile  called while the backend computes, where it does so in a process of its own.
        """
        feeds = list(feeds)
        wanted = None if wanted is None else tuple(wanted)
        plain_feeds = [plain_feed(feed) for feed in feeds]
        self.history.add(op, form, feeds)
        try:
            request = (*plain(op), plain_feeds, wanted, reuse, form, ours)
            answers = self.ask("run", *request, meanwhile=meanwhile)
        except Raised as raised:
            self.history.raised(raised)
            raise
        except (Crashed, Hung):
            self.history.clear()
            raise
        return [Result.of(*pair) for pair in zip(feeds, answers, strict=True)]

    def repeat(
        self,
        op: Operator,
        feed: Feed,
        along: tuple[Sequence[int | None], Sequence[int | None]],
        times: int,
        *,
        wanted: Sequence[int] = (),
        form: str = "",
    ) -> tuple[list[Extremes], list[Extremes | None]]:
        """What the operator makes of a feed that is repeated; see `d5test.worker.repeated`.

        Outputs, and gradients for each input, none where the feed has no upstream gradients.
        """
        outputs, gradients = self.ask(
            "repeat", *plain(op), plain_feed(feed), along, times, tuple(wanted), form
        )
        return (
            [Extremes(*y) for y in outputs],
            [None if dx is None else Extremes(*dx) for dx in gradients or ()],
        )

    def record(
        self, op: Operator, inputs: Arrays, form: str = "", *, dying: bool = False
    ) -> Calls:
        """Which functions of the framework the row, or a form, calls on these inputs.

        dying  the process may die of it, or hang: then the answer is what was known before the
               last call.
        """
        request = (*plain(op), inputs, form)
        if not dying:
            return Calls(**self.ask("record", *request))
        with TemporaryDirectory(prefix="d5test-") as folder:
            trail = Path(folder, "calls")
            try:
                return Calls(**self.ask("record", *request, str(trail)))
            except (Crashed, Hung):
                self.history.clear()
                if not trail.exists():
                    raise
                return Calls(**wire.loads(trail.read_bytes(), typed))

    def start_timing(
        self,
        op: Operator,
        feeds: Sequence[Feed],
        *,
        backward: bool = False,
        wanted: Sequence[int] | None = None,
        cold: bool = False,
        loops: int | None = None,
    ) -> int:
        """Put the feeds, warm up, and return how many calls make a round: `loops`, if given.

        With `cold` each round is one call that finds nothing in the caches.
        """
        wanted = None if wanted is None else tuple(wanted)
        plain_feeds = [plain_feed(feed) for feed in feeds]
        loops = self.ask("start_timing", *plain(op), plain_feeds, wanted, backward, cold, loops)
        assert loops is not None
        return loops

    def time_round(self) -> Round:
        """One round, the feeds in turn, the device waited for inside the clock."""
        return Round(*self.ask("time_round"))

    def stop_timing(self) -> Timed:
        """The results of the last timed call of each feed, the peak memory since the start, and
        the kernels of a further call.
        """
        answers, device, resident, kernels = self.ask("stop_timing")
        outputs = tuple(tuple(outputs) for outputs, _ in answers)
        gradients = tuple(tuple(slopes) for _, slopes in answers if slopes is not None)
        return Timed(outputs, gradients or None, device, resident, tuple(kernels))

    def compilations(self) -> int | None:
        """Compilations since the last reset; `None`: this mode compiles nothing."""
        count: int | None = self.ask("compilations")
        return count

    def reset(self) -> None:
        """Forget what was compiled."""
        self.ask("reset")

    def invoke(self, target: str, *arguments: Any) -> Any:
        """Call `module:function` where the backend is, as `function(backend, *arguments)`.

        Builtins and arrays in and out; in the worker arrays are `d5test.worker.wire.Bits`.
        """
        return self.ask("invoke", target, arguments)

    @property
    def timeout(self) -> float:
        """Seconds after which a request counts as hung. In this process none ever does."""
        return inf

    @contextmanager
    def answering_within(self, seconds: float) -> Iterator[None]:
        """Within: a request counts as hung only after so long."""
        yield

    def renew(self) -> bool:
        """Let the next request find a fresh worker, where that costs a fork; whether it will.

        A timing that is under way is lost then.
        """
        return False

    def contain(self) -> bool:
        """Renew a worker that has grown too large, between two cases; whether it was renewed."""
        return False

    def close(self) -> None:  # noqa: B027 (nothing was started in this process)
        """End what was started for this backend."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class WorkerClient(BackendClient):
    """A backend in a worker process, which is started now and restarted whenever it ended.

    timeout      seconds until a request counts as hung.
    threads      how many the framework may compute with; its own choice otherwise.
    fork         whether a fork server makes restarts cheap; not below MPI.
    importing    seconds until the import of the framework counts as failed.
    environment  variables added, or removed where `None`.
    """

    def __init__(
        self,
        spec: Spec | str,
        device: str = "",
        *,
        timeout: float = 60.0,
        threads: int | None = None,
        fork: bool = True,
        importing: float = 300.0,
        environment: Mapping[str, str | None] | None = None,
    ) -> None:
        spec = resolve(spec) if isinstance(spec, str) else spec
        self.name = spec.name
        self.most_memory = MOST_MEMORY
        python = spec.python or sys.executable
        launch = Launch(spec.name, spec.target, python, device, threads, fork, environment)
        self._process = WorkerProcess(launch, timeout, importing)
        self.close = weakref.finalize(self, self._process.close)  # type: ignore[method-assign]

    @property
    def timeout(self) -> float:
        return self._process.timeout

    @contextmanager
    def answering_within(self, seconds: float) -> Iterator[None]:
        before, self._process.timeout = self._process.timeout, seconds
        try:
            yield
        finally:
            self._process.timeout = before

    def renew(self) -> bool:
        if self._process.launch.fork:
            self._process.end_worker()
            self.history.clear()
        return self._process.launch.fork

    def contain(self) -> bool:
        return self._process.grown() > self.most_memory and self.renew()

    def _answer(self, request: tuple[Any, ...], meanwhile: Meanwhile = None) -> tuple[Any, ...]:
        answer: tuple[Any, ...] = self._process.ask(request, meanwhile)
        if answer[0] == "lost":
            self._process.end_worker()
            self.history.clear()
        return answer


class InProcessClient(BackendClient):
    """The same questions and answers as `WorkerClient`'s, without a process between.

    For debuggers: a crash of the framework is a crash of pytest.
    """

    def __init__(self, spec: Spec | str, device: str = "") -> None:
        from d5test.worker.service import Service, on_device

        spec = resolve(spec) if isinstance(spec, str) else spec
        self.name = spec.name
        make = in_this_process(spec)
        self._requests = Service(lambda: on_device(make, device))

    def _answer(self, request: tuple[Any, ...], meanwhile: Meanwhile = None) -> tuple[Any, ...]:
        arrived = wire.loads(wire.dumps(request), lambda array: array)
        answer: tuple[Any, ...] = wire.loads(self._requests.reply(arrived), typed)
        return answer


def in_this_process(spec: Spec | str) -> Any:
    """The class of a backend, imported here. Raises `UnknownBackend` and `BackendFailed`."""
    spec = resolve(spec) if isinstance(spec, str) else spec
    if spec.python is not None:
        raise UnknownBackend(f"{spec.name} names another interpreter: not in this process")
    try:
        return worker.load(spec.target)
    except Exception as error:
        kind = type(error).__name__
        why = f"{spec.name} cannot be imported: {kind}: {error}"
        raise BackendFailed(why, kind=kind) from error
