"""What a run writes of one problem on one backend: the entry beside each time in the JSON.

It travels in pytest-benchmark's `extra_info` under the key `d5test`, so that every reader of those
files still reads them. `SCHEMA` is raised when a field changes its meaning.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from d5test.metric import TIME, Sample
from d5test.numerics.judgement import Judgement
from d5test.problems.problem import Problem

SCHEMA = 1
KEY = "d5test"

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
    schema: int = SCHEMA

    @property
    def valid(self) -> bool:
        """Whether the timed calls were right; otherwise the time means nothing."""
        return bool(self.judgement["right"])

    def to_json(self) -> dict[str, Any]:
        """The entry, with the median, its 95% confidence interval, FLOP/s and bytes/s."""
        sample = Sample(TIME, tuple(self.seconds))
        operations = OPERATIONS[self.direction] * self.multiplications
        moved = self.input_bytes + self.output_bytes
        return {
            **asdict(self),
            "valid": self.valid,
            "median": sample.median,
            "median_interval_95": sample.median_interval(),
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


def describe_judgement(judgement: Judgement) -> dict[str, Any]:
    """Ratio, share judged and arithmetic class."""
    return {
        "right": judgement.right,
        "ratio": judgement.ratio,
        "share": judgement.share,
        "arithmetic": judgement.arithmetic,
    }


def environment() -> dict[str, Any]:
    """The machine as it is now."""
    return {
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (s.partition(":")[2].strip() for s in lines if s.startswith("model name"))
    return next(names, platform.processor())
