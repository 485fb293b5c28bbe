"""A problem timed on a backend: started, measured round by round, and recorded.

Requirements: the inputs rotate; the outputs of the timed calls are judged, so that the record
tells whether its times mean anything; pytest-benchmark and the gate measure the same.

Where several processes are timed (by the gate in turns, by a run with control arms in visits),
rounds are short, and tensors lie elsewhere each time that they are made: where they lie decides
what they displace in the caches, which makes a kernel faster or slower by more than what is looked
for; see docs/gate.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Case
from d5test.checks.check import without_reference
from d5test.checks.value import verify
from d5test.client.client import BackendClient
from d5test.client.messages import FAILURES, BackendInfo, Feed, Round
from d5test.problems import Problem
from d5test.record import Record, describe, describe_backend, describe_judgement, environment

FEEDS = 3
"""Inputs that are called in turn, so that no call finds its own in a cache of results."""
BROKEN = (Unsupported, *FAILURES)
"""What is raised where something cannot be timed."""
BRIEF = 15
"""How many short rounds are made of one of the usual length: they are rarely pre-empted."""
DISTANCE = 2 << 20
"""Bytes by which tensors are moved, at most."""
LINE = 64
"""Bytes of a cache line: they are moved by whole ones."""
Entry = dict[str, Any]
"""A record as it is written; see `d5test.record.Record`."""


class Timed(Protocol):
    """Something on a client that can be timed.

    Each call raises `Unsupported`, `Raised`, `Crashed` or `Hung`. Several share a client one after
    the other; several clients are timed in turns; one is started again to make its tensors anew.
    """

    def start(self, loops: int | None = None) -> int:
        """Warm up; how many calls make a round: `loops`, if given."""

    def round(self) -> Round:
        """Seconds a call of one round."""

    def record(self, rounds: Sequence[Round], loops: int) -> Entry:
        """Stop, and judge the last timed calls: the entry of `d5test.record.Record`."""

    def close(self) -> None:
        """Give back what was made on the client."""


@dataclass(frozen=True)
class Subject:
    """A benchmark: what is timed on a client, in an arm."""

    name: str
    backend: str
    make: Callable[[BackendClient, str], Timed]


def displacement(draw: np.random.Generator) -> int:
    """Bytes by which tensors are to be moved."""
    return LINE * int(draw.integers(1, DISTANCE // LINE))


def move(client: BackendClient, distance: int) -> None:
    """Let what the client makes next lie so many bytes farther on."""
    client.invoke("d5test.worker.machine:pad", distance)


class TimedProblem:
    """A problem, forward or backward."""

    def __init__(
        self, client: BackendClient, problem: Problem, direction: str, *, cold: bool = False
    ) -> None:
        self._client, self._problem, self._cold = client, problem, cold
        self._direction = direction
        self._backward = direction == "backward"
        self._cases = [replace(problem.case, seed=seed) for seed in range(FEEDS)]
        self._feeds: list[Feed] = []

    def start(self, loops: int | None = None) -> int:
        """See `Timed`."""
        reason = _why_not(self._client.about, self._problem, self._backward)
        if reason:
            raise Unsupported(reason)
        self._feeds = self._feeds or [self._feed(case) for case in self._cases]
        return self._client.start_timing(
            self._problem.case.op,
            self._feeds,
            backward=self._backward,
            cold=self._cold,
            loops=loops,
        )

    def round(self) -> Round:
        """See `Timed`."""
        return self._client.time_round()

    def record(self, rounds: Sequence[Round], loops: int) -> Entry:
        """See `Timed`."""
        timed = self._client.stop_timing()
        results = timed.gradients if timed.gradients is not None else timed.outputs
        judgement = verify(self._client, self._cases[-1], self._feeds[-1].grads, results[-1])
        return Record(
            **describe(self._problem),
            **describe_rounds(rounds),
            direction=self._direction,
            backend=describe_backend(self._client.about),
            loops=loops,
            output_bytes=sum(y.nbytes for y in timed.outputs[-1]),
            judgement=describe_judgement(judgement),
            memory={"resident": timed.resident_memory, "device": timed.device_memory},
            cold=self._cold,
            kernels=timed.kernels,
            environment=environment(),
        ).to_json()

    def close(self) -> None:
        """See `Timed`: the worker gives the tensors back when the timing stops."""

    def _feed(self, case: Case) -> Feed:
        """The inputs of a case, with upstream gradients for its backward."""
        feed = Feed(case.arrays())
        if not self._backward:
            return feed
        (result,) = self._client.run(case.op, [feed])
        return replace(feed, grads=case.upstream(result.outputs))


def _why_not(about: BackendInfo, problem: Problem, backward: bool) -> str:
    """Why this problem is not timed on this backend; empty if it is."""
    operator = problem.case.op.name
    row = about.rows.get(operator)
    if row is None:
        return f"{about.name} has no row for {operator}"
    if why := without_reference(type(problem.case.op)):
        return str(why)
    if not row.native:
        return f"{operator} is composed by d5test on {about.name}"
    return row.gradient if backward else ""


def describe_rounds(rounds: Sequence[Round]) -> dict[str, Any]:
    """The fields of a record that are the rounds'."""
    return {
        "seconds": [r.wall for r in rounds],
        "cpu": [r.cpu for r in rounds],
        "preempted": [r.switches for r in rounds],
    }
