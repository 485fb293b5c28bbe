"""What must hold of a network that is divided among ranks: as `d5test.distributed.checks`.

Each rank's gradient is that of the undivided network; the pipeline's bubble, by a virtual clock,
and the activations that it keeps are those of its schedule; bytes are those of a formula.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Case, Operator, Tensor, dtype_of
from d5test.distributed.checks import ANYTHING, RIGHT, Pick, Property, RanksInquiry
from d5test.distributed.communicator import Array, Reduced, Runner, run_copies
from d5test.distributed.judges import Judge, single
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import double, forward_bounds, lower_precision
from d5test.numerics.judgement import Judgement, judge
from d5test.reference.collectives import Schedule
from d5test.reference.pipelines import ORDERS, Division, Plan, undivided


@dataclass(frozen=True, kw_only=True, repr=False)
class Divided(Operator):
    """One step of a network that is divided by a `Plan`: the gradient that each rank has.

    Inputs, all flat: `a` and `b` of all stages, then the joined minibatch, then its targets.
    Outputs: of each rank what `Division.step` says.

    d, h       features of a block, and those inside it
    count      samples of a microbatch
    delivery   which order of delivery virtual ranks have
    """

    domain = "d5test"
    tensor: int = 1
    stages: int = 1
    data: int = 1
    microbatches: int = 1
    order: str = "gpipe"
    sequence: bool = False
    d: int = 1
    h: int = 1
    count: int = 1
    delivery: int = 0

    @property
    def plan(self) -> Plan:
        """How it is divided."""
        return Plan(
            self.tensor, self.stages, self.data, self.microbatches, self.order, self.sequence
        )

    def shaped(self, w: Any, x: Any, targets: Any) -> tuple[Any, Any, Any, Any]:
        """`a`, `b`, samples and targets in their shapes."""
        half = self.stages * self.d * self.h
        return (
            w[:half].reshape(self.stages, self.d, self.h),
            w[half:].reshape(self.stages, self.h, self.d),
            x.reshape(-1, self.d),
            targets.reshape(-1, self.d),
        )

    def step(self, make: type[Division], rank: int, y: Any, *inputs: Any) -> Schedule:
        """A rank's schedule, which fills `y`."""
        a, b, x, targets = self.shaped(*inputs)
        _, stage, _ = self.plan.place(rank)
        columns, samples = self.plan.columns(rank, self.h), self.plan.samples(rank, self.count)
        return make(
            self.plan, rank, a[stage][:, columns], b[stage][columns],
            [x[at] for at in samples], [targets[at] for at in samples], len(x),
        ).step(y)  # fmt: skip

    def rooms(self, *inputs: Any) -> list[Any]:
        """Of each rank, where its results go: zeros."""
        long = np.concatenate([0 * x for x in inputs])
        columns = [self.plan.columns(rank, self.h) for rank in range(self.plan.size)]
        return [long[: 2 * self.d * (c.stop - c.start) + 2] for c in columns]

    def forward(self, *inputs: Any) -> Any:
        """By the schedule, on virtual ranks."""

        def program(rank: int, size: int, y: Any) -> Schedule:
            return self.step(Division, rank, y, *inputs)

        return run_copies(program, self.rooms(*inputs), self.delivery)[0]

    def sequential(self, *inputs: Any) -> list[Any]:
        """What each rank should have, cut out of the undivided network's gradient."""
        da, db = undivided(*self.shaped(*inputs))
        found = []
        for rank in range(self.plan.size):
            _, stage, _ = self.plan.place(rank)
            columns = self.plan.columns(rank, self.h)
            parts = da[stage][:, columns], db[stage][columns], self.counts(rank)
            found.append(np.concatenate([np.ravel(part) for part in parts]))
        return found

    def counts(self, rank: int) -> list[float]:
        """The clock of a rank at the end, and the items of activations that it kept.

        The last backward pass of the first stage ends after 2 (microbatches + stages - 1) passes,
        that of each stage behind it one earlier.
        """
        plan = self.plan
        _, stage, _ = plan.place(rank)
        kept = plan.kept_items(rank, self.d, self.h, self.count)
        return [2 * (plan.microbatches + plan.stages - 1) - stage, kept]


SEQUENCE = "column_row-sequence"
DIVISIONS = ("column_row", SEQUENCE, *ORDERS, *(f"hybrid-{order}" for order in ORDERS))
"""Tensor parallelism, with rows divided, too, or not; pipelines; those with replicas and all."""


def divided(subject: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A plan for any number of ranks. Hidden features are at least as many as share them."""
    size, kind = pick(sizes), subject.rpartition("-")[2]
    tensor, stages, data = size, 1, 1
    if kind in ORDERS:
        tensor, stages = 1, size
    if subject.startswith("hybrid"):
        factors = [k for k in range(1, size + 1) if size % k == 0]
        tensor = pick(factors)
        stages = pick([k for k in factors if size // tensor % k == 0])
        data = size // tensor // stages
    sequence = subject == SEQUENCE or (subject.startswith("hybrid") and pick((False, True)))
    op = Divided(
        tensor=tensor, stages=stages, data=data, microbatches=pick(range(1, 6)),
        order=kind if kind in ORDERS else "gpipe", sequence=sequence, d=pick(range(1, 5)),
        h=tensor + pick(range(3)), count=pick(range(1, 4 + sequence * tensor)),
        delivery=pick(ANYTHING),
    )  # fmt: skip
    samples = data * op.microbatches * op.count * op.d
    shapes = (2 * stages * op.d * op.h,), (samples,), (samples,)
    return Case(op, tuple(Tensor(shape, dtype) for shape in shapes), seed=pick(ANYTHING))


@dataclass(frozen=True, kw_only=True)
class DividedProperty(Property):
    """A check of a divided network."""

    def done_in(self, comm: Any, subject: str) -> tuple[str, ...]:
        """All of its dtypes, wherever schedules run."""
        return self.dtypes if hasattr(comm, "run") else ()


class _Inquiry(RanksInquiry):
    """One case of `Divided`. A communicator's own `division` stands for ours."""

    def __init__(self, check: str, comm: Runner, case: Case) -> None:
        assert isinstance(case.op, Divided)
        self.op, self.runner = case.op, comm
        super().__init__(check, comm, case, case.op.plan.size)

    def divided(self) -> Callable[[], Reduced]:
        """A judge finds what the ranks have."""
        make = getattr(self.comm, "division", Division)
        rooms = self.op.rooms(*self.arrays)

        def program(rank: int, size: int, y: Array) -> Schedule:
            return self.op.step(make, rank, y, *self.arrays)

        return self.attempt(lambda: self.runner.run(program, rooms, self.op.delivery), rooms)


def gradients(comm: Runner, case: Case) -> Judge:
    """Each rank's gradient is the undivided network's, within the bar of the schedule."""
    inquiry = _Inquiry("gradients", comm, case)
    op, arrays, answer = inquiry.op, inquiry.arrays, inquiry.divided()

    def judged() -> Judgement:
        (arithmetic,) = classes(inquiry.dtype)
        ours = zip(
            op.sequential(*double(arrays)), forward_bounds(op, arrays, arithmetic), strict=True
        )
        bounds = tuple(replace(bound, value=value) if bound else None for value, bound in ours)
        return inquiry.within(
            judge(bounds, answer().results), bounds, "a gradient is not the undivided network's",
            lambda: lower_precision(op, arrays, None, inquiry.dtype),
        )  # fmt: skip

    return judged


def bubble(comm: Runner, case: Case) -> Judge:
    """The share of time that stages wait is (p - 1) / (m + p - 1), by the virtual clock.

    Each stage ends when it should, and keeps the activations of as many microbatches as it
    should: all m in GPipe, p less its own number in 1F1B. Where rows are divided, of its own.
    """
    inquiry = _Inquiry("bubble", comm, case)
    plan, answer = inquiry.op.plan, inquiry.divided()

    def judged() -> Judgement:
        results = answer().results
        for rank, result in enumerate(results):
            _, stage, _ = plan.place(rank)
            got, want = [float(x) for x in result[-2:]], inquiry.op.counts(rank)
            if got != want:
                raise inquiry.fault(
                    "bubble", "a stage waits too long, or keeps too much", None,
                    where=f"rank {rank}, stage {stage} of {plan.stages}",
                    got=f"ends at {got[0]:g}, keeps {got[1]:g} items",
                    want=f"ends at {want[0]:g}, keeps {want[1]:g} items",
                )  # fmt: skip
        end = max(float(result[-2]) for result in results)
        waits = 1 - 2 * plan.microbatches / end
        return replace(RIGHT, got=waits, bar=plan.bubble())

    return judged


def division_traffic(comm: Runner, case: Case) -> Judge:
    """The bytes sent are what the plan's formula says."""
    inquiry = _Inquiry("division_traffic", comm, case)
    op, answer = inquiry.op, inquiry.divided()

    def judged() -> Judgement:
        sent = sum(t.bytes for t in inquiry.sent(answer()))
        want = op.plan.items(op.d, op.h, op.count) * dtype_of(inquiry.dtype).itemsize
        return inquiry.costs({"bytes": (sent, want)}, "Plan.items")

    return judged


_row = partial(DividedProperty, dtypes=("float64", "float32"), one=divided, subjects=DIVISIONS)
_ROWS = (
    _row("gradients", single(gradients), kind="value"),
    _row("bubble", single(bubble), measures="of a stage's time is spent waiting"),
    _row("division_traffic", single(division_traffic)),
)
DIVISION: Mapping[str, DividedProperty] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""
