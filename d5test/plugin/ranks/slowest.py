"""pytest-benchmark on ranks: a round lasts as long as it lasts on the slowest rank.

Requirements: all ranks run the same rounds and loops, since both follow from durations that all
agree on; they begin each round together; rank 0 alone writes. The JSON says which MPI ran, on how
many ranks and cores, and with what settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from d5test.plugin.ranks.ranks import Ranks


class Slowest:
    """The plugin of each rank."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._patch = pytest.MonkeyPatch()
        make_runner = BenchmarkFixture._make_runner  # noqa: SLF001 - there is no hook
        get_precision = BenchmarkFixture._get_precision  # noqa: SLF001
        calibrate = BenchmarkFixture._calibrate_timer  # noqa: SLF001

        def _make_runner(fixture: Any, *given: Any) -> Callable[..., Any]:
            run = make_runner(fixture, *given)

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
            warmup, fixture._warmup = fixture._warmup, False  # noqa: SLF001 - by each rank's clock
            try:
                return calibrate(fixture, runner)
            finally:
                fixture._warmup = warmup  # noqa: SLF001

        for name, own in (
            ("_make_runner", _make_runner),
            ("_get_precision", _get_precision),
            ("_calibrate_timer", _calibrate_timer),
        ):
            self._patch.setattr(BenchmarkFixture, name, own)

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
