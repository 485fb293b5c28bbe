"""What a run writes about one problem on one backend: the entry beside each time in the JSON.

It travels in pytest-benchmark's `extra_info` under the key `d5test`, so that every reader of those
files still reads them. `SCHEMA` is raised when a field changes its meaning; all of it is written
down in `compare/schema.json`. Metrics of strangers stand beside it, under the key `metrics`.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import psutil

from d5test import processor
from d5test.metric import TIME, Sample, median_interval
from d5test.numerics.arithmetic import DOUBLE_ROUNDOFF, format_of
from d5test.numerics.judgement import Judgement
from d5test.problems import Problem

SCHEMA = 1
KEY = "d5test"
METRICS = "metrics"
"""Where strangers put metrics of theirs in `extra_info`: a list of `Sample.to_json()`."""

DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")
"""Where Linux tells the version of a GPU's driver, in the first line."""
OPERATIONS = {"forward": 2, "backward": 4}
"""Floating-point operations a multiplication of the forward pass: one product and one sum; the
backward pass has two products of that size, one for each factor."""


@dataclass(frozen=True)
class Record:
    """One problem on one backend in one direction.

    seconds     wall time a call, one value a round, in order
    cpu         CPU time a call, likewise
    preempted   involuntary context switches, likewise
    judgement   of the timed calls' own outputs; a time whose outputs are wrong is not `valid`
    memory      peak bytes, `resident` and `device` (None where the device does not count)
    kernels     what ran in a call, in the framework's own names; empty where it tells none
    control     the least wall time a call of each further run of the same version in the same
                session, in fresh processes: what runs of one version differ by
    control_resident   their peak resident bytes
    paced       what a call takes in each of these runs, the first one included, measured against
                a `work` that is always the same: `times`, as multiples of it, and its seconds,
                `paces`. None where it was not looked at
    """

    problem: str
    source: str
    operator: str
    attributes: Mapping[str, Any]
    shapes: Sequence[Sequence[int] | None]
    dtype: str
    direction: str
    backend: Mapping[str, Any]
    seconds: Sequence[float]
    cpu: Sequence[float]
    preempted: Sequence[int]
    loops: int
    multiplications: int
    input_bytes: int
    output_bytes: int
    judgement: Mapping[str, Any]
    memory: Mapping[str, int | None]
    cold: bool
    environment: Mapping[str, Any] = field(default_factory=dict)
    kernels: Sequence[str] = ()
    control: Sequence[float] = ()
    control_resident: Sequence[int] = ()
    paced: Mapping[str, Any] | None = None
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """The entry, with the median, its 95% confidence interval, FLOP/s and bytes/s."""
        sample = Sample(TIME, tuple(self.seconds))
        operations = OPERATIONS[self.direction] * self.multiplications
        moved = self.input_bytes + self.output_bytes
        return {
            **asdict(self),
            "valid": bool(self.judgement["right"]),
            "preempted_rounds": sum(switches > 0 for switches in self.preempted),
            "ratio_resolution": ratio_resolution(self.dtype),
            "median": sample.median,
            "median_interval_95": median_interval(sample.values),
            "flop_per_second": operations / sample.median if operations else None,
            "bytes_per_second": moved / sample.median,
        }


def describe(problem: Problem) -> dict[str, Any]:
    """The fields of a record that are the problem's own."""
    op = problem.case.op
    return {
        "problem": problem.name,
        "source": problem.source,
        "operator": op.name,
        "attributes": op.attributes,
        "shapes": problem.case.shapes,
        "dtype": problem.case.dtype,
        "multiplications": problem.multiplications,
        "input_bytes": problem.input_bytes,
    }


def describe_backend(about: Any) -> Mapping[str, Any]:
    """What a record says of a backend; `about`: as its worker describes it."""
    return {
        name: getattr(about, name)
        for name in ("name", "framework", "version", "device", "device_name", "mode", "threads",
                     "python")
    } | {"packages": dict(about.packages), "libraries": list(about.libraries)}  # fmt: skip


def describe_judgement(judgement: Judgement) -> dict[str, Any]:
    """Ratio, share judged and arithmetic class."""
    return {name: getattr(judgement, name) for name in ("right", "ratio", "share", "arithmetic")}


def ratio_resolution(dtype: str) -> float:
    """How well the ratio of error and bar is known: up to the rounding of the reference.

    The reference's error in float64 and the bar in `dtype` grow with the same number of roundings,
    so that the error's share of the bar is about the quotient of the unit roundoffs.
    """
    return DOUBLE_ROUNDOFF / format_of(dtype).u


def describe_corpus(
    problem: Problem,
    direction: str,
    about: Any,
    judgement: Judgement,
    corpus: Mapping[str, Any],
    where: Mapping[str, Any],
) -> dict[str, Any]:
    """The entry of a case of the corpus: judged, right or wrong, and not timed.

    about   the backend, as its worker describes it
    corpus  version and hash of the corpus, and the hash of the case's data
    where   the `environment`
    """
    return {
        **describe(problem),
        "direction": direction,
        "backend": describe_backend(about),
        # JSON has no infinity: an error without end has no ratio, and is wrong
        "judgement": describe_judgement(judgement)
        | ({} if isfinite(judgement.ratio) else {"ratio": None}),
        "ratio_resolution": ratio_resolution(problem.case.dtype),
        "corpus": dict(corpus),
        "environment": dict(where),
        "schema": SCHEMA,
    }


def describe_run(reports: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The entry of a whole run: outcomes, and why what has no time has none.

    `reports`: pytest's, by outcome, as its terminal reporter keeps them.
    """
    unpassed = ("failed", "error", "skipped")
    return {
        "schema": SCHEMA,
        "outcomes": {kind: len(reports.get(kind, ())) for kind in ("passed", *unpassed)},
        "untimed": {
            report.nodeid: f"{kind}: {_reason(report)}"
            for kind in unpassed
            for report in reports.get(kind, ())
        },
    }


def _reason(report: Any) -> str:
    """Why a test failed or was skipped, in its first line."""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return str(longrepr[2]).removeprefix("Skipped: ").partition("\n")[0]
    crash = getattr(longrepr, "reprcrash", None)
    text = str(crash.message if crash else longrepr).strip()
    return text.removeprefix("Failed: ").partition("\n")[0]


def environment() -> dict[str, Any]:
    """The machine as it is now."""
    return {
        "system": platform.platform(),
        "cpu": processor.name(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory": psutil.virtual_memory().total,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "threads": {
            name: os.environ[name] for name in sorted(os.environ) if name.endswith("_NUM_THREADS")
        },
        "driver": driver(),
    }


def usable_cores() -> int | None:
    """Cores that this process may run on; None where nobody knows."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count()


def driver() -> str | None:
    """The GPU's driver; None where the kernel has none."""
    for path in DRIVERS:
        with suppress(OSError, IndexError):
            return " ".join(Path(path).read_text().splitlines()[0].split())
    return None
