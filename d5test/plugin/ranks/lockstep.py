"""Other tools on ranks: Hypothesis draws the same examples, pytest-benchmark times the slowest.

Requirements: all ranks stop at the first example that fails at any; nobody waits for a rank that
has gone on to another example; what fails is shown by the rank at which it failed, as Hypothesis
shows it. Nothing shrinks: an example that failed has spoilt the communicator, and cannot be run
again. Where ranks need not be processes, virtual ranks can shrink.

All ranks run the same rounds and loops, since both follow from durations that all agree on, those
of the slowest rank; they begin each round together; rank 0 alone writes. The JSON says which MPI
ran, on how many ranks and cores, and with what settings.
"""

import functools
import hashlib
import re
import signal
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from d5test.distributed.guarded import Left
from d5test.plugin.ranks.ranks import Ranks
from d5test.plugin.ranks.together import Together

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
SETTINGS = "_hypothesis_internal_use_settings"


class Lockstep:
    """The plugin of each rank, for Hypothesis."""

    def __init__(self, together: Together) -> None:
        self.together = together

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run the examples of a test of Hypothesis in step."""
        test = getattr(item, "obj", None)
        handle = getattr(test, "hypothesis", None)
        if handle is None:
            return (yield)
        function = getattr(test, "__func__", test)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handle, "inner_test", self._in_step(handle.inner_test))
            patch.setattr(function, SETTINGS, _same_everywhere(getattr(function, SETTINGS)))
            return (yield)

    def _in_step(self, test: Callable[..., Any]) -> Callable[..., Any]:
        failed: list[BaseException] = []

        @functools.wraps(test)
        def together(*arguments: Any, **drawn: Any) -> Any:
            __tracebackhide__ = True
            if failed:  # Hypothesis runs a failing example again, to show it
                raise failed[0]
            self._agree_on(arguments, drawn)
            try:
                error = None
                try:
                    test(*arguments, **drawn)
                except BaseException as raised:  # noqa: BLE001 - raised again, once all know
                    error = raised
                self._agree_after(error)
            except BaseException as error:
                if not _rejects(error):
                    failed.append(error)
                raise

        return together

    def _agree_on(self, arguments: Any, drawn: Any) -> None:
        text = ADDRESS.sub("", repr((arguments, sorted(drawn.items()))))
        digest = hashlib.sha256(text.encode()).hexdigest()
        if len({remark["digest"] for remark in self._tell({"digest": digest})}) > 1:
            raise AssertionError(
                "the ranks drew different examples: does a strategy know its rank?"
            )

    def _agree_after(self, error: BaseException | None) -> None:
        """Raise this rank's error, or, if it has none, for that of another."""
        __tracebackhide__ = True
        left = error is not None and not isinstance(error, Left) and not _rejects(error)
        if left:
            self.together.ranks.notices.send()
        remark = None if error is None else {"left": left, "rejects": _rejects(error)}
        remarks = self._tell(remark) or []
        gone = [rank for rank, other in enumerate(remarks) if other and other["left"]]
        self.together.ranks.notices.clear(gone)
        if error is not None and not (gone and _rejects(error)):
            raise error
        if gone:
            raise Left(f"had passed the example with which rank {gone[0]} left")
        if remarks:
            import hypothesis

            hypothesis.reject()

    def _tell(self, remark: Any) -> Any:
        """Tell the others, whatever the deadline: half told, they could not be told any more."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            return self.together.tell("example", remark)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _rejects(error: BaseException) -> bool:
    from hypothesis.errors import UnsatisfiedAssumption

    return isinstance(error, UnsatisfiedAssumption)


def _same_everywhere(settings: Any) -> Any:
    """Settings under which the examples follow from the test alone."""
    from hypothesis import HealthCheck, Phase
    from hypothesis import settings as make

    return make(
        settings,
        derandomize=True,
        database=None,
        deadline=None,
        phases=tuple(p for p in settings.phases if p in (Phase.explicit, Phase.generate)),
        suppress_health_check=tuple(HealthCheck),
    )


class Slowest:
    """The plugin of each rank, for pytest-benchmark."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._patch = pytest.MonkeyPatch()
        make_runner = BenchmarkFixture._make_runner  # noqa: SLF001 - there is no hook
        get_precision = BenchmarkFixture._get_precision  # noqa: SLF001
        calibrate = BenchmarkFixture._calibrate_timer  # noqa: SLF001

        def _make_runner(fixture: Any, *arguments: Any) -> Callable[..., Any]:
            run = make_runner(fixture, *arguments)

            def together(loops: Any, timer: Any = fixture._timer) -> Any:  # noqa: SLF001
                ranks.own.Barrier()  # nobody has left
                ranks.own.raw.Barrier()  # nobody is late
                measured = run(loops, timer)
                if loops:
                    return self._slowest(measured)
                return self._slowest(measured[0]), measured[1]

            return together

        def _get_precision(fixture: Any, timer: Any) -> float:
            return self._slowest(get_precision(fixture, timer))

        def _calibrate_timer(fixture: Any, runner: Any) -> Any:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(fixture, "_warmup", False)  # else by each rank's clock
                return calibrate(fixture, runner)

        for method in (_make_runner, _get_precision, _calibrate_timer):
            self._patch.setattr(BenchmarkFixture, method.__name__, method)

    def _slowest(self, seconds: float) -> float:
        longest = np.empty(1)
        self.ranks.own.Allreduce(np.array([seconds]), longest, self.ranks.world.mpi.MAX)
        return float(longest[0])

    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Which MPI, and on what."""
        machine_info["mpi"] = self.ranks.world.facts()

    def pytest_unconfigure(self) -> None:
        """Leave pytest-benchmark as it was."""
        self._patch.undo()
