"""What must hold of the communication hooks by which a library compresses gradients.

A communicator that has such hooks, as PyTorch's DistributedDataParallel does, has a method
`hooked(name, gradients)`. As `d5test.distributed.checks`, for cases whose operator is `Hooked`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from d5test.case import Case, Operator, Tensor
from d5test.distributed.checks import ANYTHING, Pick, Property, RanksInquiry
from d5test.distributed.communicator import Array, ByRank, Communicator, Reduced
from d5test.distributed.judges import Judge, single
from d5test.numerics.arithmetic import format_of
from d5test.numerics.bounds import Bound
from d5test.numerics.judgement import Judgement, judge, rejects
from d5test.outcome.fault import judgement_in_words

COLUMNS = 2
"""Of the factors that PowerSGD's hook is to make."""
NARROW = ("fp16_compress_hook",)
LOW_RANK = ("powerSGD_hook",)


class HasHooks(Communicator, Protocol):
    """A communicator with hooks."""

    def hooked(
        self, name: str, gradients: Sequence[Array]
    ) -> tuple[Sequence[Array], Sequence[Array]]:
        """What a hook makes of the ranks' gradients, (steps, rows, width) each, step by step.

        Each rank's means, (steps, rows, width), and what each still owes, (rows, width).
        """


@dataclass(frozen=True, kw_only=True, repr=False)
class Hooked(Operator):
    """Each rank has `steps` gradients of `rows` rows, one behind the other in its input.

    hook  a name in `NARROW` or `LOW_RANK`
    """

    domain = "d5test"
    hook: str
    rows: int
    steps: int = 3

    def forward(self, *gradients: Any) -> Any:
        """The mean over ranks."""
        return np.mean(gradients, axis=0)


@dataclass(frozen=True, kw_only=True)
class HookProperty(Property):
    """A check of a hook."""

    def done_in(self, comm: Any, subject: str) -> tuple[str, ...]:
        """Wherever there are hooks."""
        return self.dtypes if hasattr(comm, "hooked") else ()


class HookInquiry(RanksInquiry):
    """One case of `Hooked`, put to the hook. A judge finds `means` and `owed`."""

    def __init__(self, check: str, comm: HasHooks, case: Case) -> None:
        super().__init__(check, comm, case, len(case.inputs))
        assert isinstance(case.op, Hooked)
        op = self.op = case.op
        self.format, self.u = format_of(self.dtype), format_of(self.dtype).u
        self.gradients = ByRank(
            self.size, lambda rank: self.arrays[rank].reshape(op.steps, op.rows, -1)
        )

        def call() -> Reduced:
            means, self._owed = comm.hooked(op.hook, self.gradients)
            return Reduced(means)

        self._answer = self.attempt(call, self.gradients)

    @property
    def means(self) -> Array:
        """What all ranks have, step by step: (steps, rows, width)."""
        results = self._answer().results
        self.equal([x.reshape(-1) for x in results])
        return results[0]

    @property
    def owed(self) -> Array:
        """What each rank owes: (ranks, rows, width)."""
        return np.array(self._owed, np.float64)

    def held(self, want: Array, bar: Array, got: Array, wrong: str) -> tuple[Judgement, Bound]:
        """The judgement of a result and its bound, or the fault that it is outside."""
        bound = Bound(want, bar, self.format)
        judgement = judge((bound,), [got])
        if not judgement.right:
            words = judgement_in_words(judgement, self.dtype)
            raise self.fault("value", wrong, judgement, **words)
        return judgement, bound


def hooked(hook: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A few gradients of a matrix at each rank."""
    size, steps = pick(sizes), pick(range(1, 5))
    rows, width = pick(range(3, 9)), pick(range(3, 12))
    op = Hooked(hook=hook, rows=rows, steps=steps)
    return Case(op, (Tensor((steps * rows * width,), dtype),) * size, seed=pick(ANYTHING))


def narrow(comm: HasHooks, case: Case) -> Judge:
    """Means are float16's, off by its roundings: of each contribution, its share, and each sum."""
    inquiry = HookInquiry("hook_narrow", comm, case)

    def judged() -> Judgement:
        half, size = format_of("float16"), inquiry.size
        exact, means = np.array(inquiry.gradients, np.float64), inquiry.means
        whole = np.abs(exact).mean(axis=0)
        bar = (size + 2) * (half.u * (1 + size * half.u) * whole + half.smallest_subnormal)
        judgement, bound = inquiry.held(
            exact.mean(axis=0), bar, means, "a mean is further off than float16 explains"
        )
        if np.any(means != means.astype(np.float16)):
            raise inquiry.fault("volume", "means are no numbers of float16: more was sent")
        tells = size == 1 or rejects((bound,), [exact[1:].mean(axis=0)])
        return replace(judgement, telling=tells)

    return judged


def low_rank(comm: HasHooks, case: Case) -> Judge:
    """Means are products of few columns; with what is owed they are the sum of the mean gradients.

    Roundings are those of `d5test.distributed.compression.telescoping`.
    """
    inquiry = HookInquiry("hook_low_rank", comm, case)

    def judged() -> Judgement:
        exact, means = np.array(inquiry.gradients, np.float64), inquiry.means.astype(np.float64)
        for step, mean in enumerate(means):
            singular = np.linalg.svd(mean, compute_uv=False)
            noise = 8 * sum(mean.shape) * inquiry.u * singular[0]
            if np.any(singular[COLUMNS:] > noise):
                raise inquiry.fault(
                    "volume", f"a mean is no product of {COLUMNS} columns: more was sent",
                    step=str(step + 1), singular=", ".join(f"{s:.3g}" for s in singular),
                )  # fmt: skip
        left = inquiry.owed.mean(axis=0)
        whole = exact.mean(axis=0).sum(axis=0)
        sizes = np.linalg.norm(exact.reshape(inquiry.size, inquiry.op.steps, -1), axis=-1)
        reach = size = 0.0
        for added in sizes.mean(axis=0):
            # a rank owes what it has less a projection of what all have: at most twice the mean
            size = added + 2 * size
            reach += 3 * size
        bar = np.full(whole.shape, (inquiry.size + 3) * inquiry.u * reach)
        judgement, bound = inquiry.held(
            whole, bar, means.sum(axis=0) + left, "what is sent and owed is not what there was"
        )
        return replace(judgement, telling=rejects((bound,), [whole - left]))

    return judged


_row = partial(HookProperty, kind="value", dtypes=("float32",), one=hooked)
_ROWS = (
    _row("hook_narrow", single(narrow), subjects=NARROW),
    _row("hook_low_rank", single(low_rank), subjects=LOW_RANK),
)
HOOKED: Mapping[str, HookProperty] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""
