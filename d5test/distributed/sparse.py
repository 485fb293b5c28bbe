"""What must hold of an allreduce of sparse vectors: as of any, and bytes by where items are.

As `d5test.distributed.checks`, for cases whose operator is `SparseAllreduce`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Case, Operator, Tensor, dtype_of, is_float
from d5test.distributed.checks import (
    ANYTHING,
    REGIMES,
    RIGHT,
    WHOLE,
    Pick,
    Property,
    RanksInquiry,
)
from d5test.distributed.communicator import (
    DTYPES,
    LIBRARY,
    Allreduce,
    Array,
    ByRank,
    Reduced,
    Runner,
)
from d5test.distributed.judges import Judge, single
from d5test.numerics.arithmetic import classes, format_of
from d5test.numerics.bounds import forward_bounds, lower_precision
from d5test.numerics.judgement import Judgement, rejects, tightest
from d5test.reference.sparse_collectives import SPARSE_ALLREDUCE

DENSITIES = (0.0, 0.02, 0.1, 0.3, 0.7, 1.0)
OVERLAPS = ("random", "same", "apart")
"""Where the ranks' items are: anywhere, all in the same places, or no two in one place."""
LENGTHS = (range(4), range(71), range(71), (500, 1024))
BASE = 4
"""Of the digits that ranks contribute to a census."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SparseAllreduce(Operator):
    """The sum of n contributions, most of whose items are zero, at every rank.

    algorithm  a name in `SPARSE_ALLREDUCE`
    density    the share of items that are left as they are; the others are made zero
    overlap    one of `OVERLAPS`
    order      which order of delivery virtual ranks have
    """

    domain = "d5test"
    algorithm: str
    density: float
    overlap: str = "random"
    order: int = 0

    def forward(self, *contributions: Any) -> Any:
        """One output a rank, the items summed in any order."""
        return Allreduce(algorithm=LIBRARY)(*contributions)


@dataclass(frozen=True, kw_only=True)
class SparseProperty(Property):
    """A check of an allreduce of sparse vectors."""

    subjects: tuple[str, ...] = (*SPARSE_ALLREDUCE,)

    def done_in(self, comm: Any, subject: str) -> tuple[str, ...]:
        """All of its dtypes, wherever schedules run."""
        return self.dtypes if hasattr(comm, "run") else ()


class SparseInquiry(RanksInquiry):
    """One case of `SparseAllreduce`. `arrays` are zero where the case says so."""

    def __init__(self, check: str, comm: Runner, case: Case) -> None:
        super().__init__(f"sparse_{check}", comm, case, len(case.inputs))
        assert isinstance(case.op, SparseAllreduce)
        self.op, self.runner = case.op, comm
        self.algorithm = SPARSE_ALLREDUCE[case.op.algorithm]
        self.supports = self._supports()
        full, supports = self.arrays, self.supports
        self.arrays = ByRank(
            self.size, lambda rank: np.where(supports[rank], full[rank], full[rank].dtype.type(0))
        )

    def _supports(self) -> list[Any]:
        """Where each rank's items are left, (n,) each."""
        words, n, ranks = np.random.Philox(key=[self.case.seed, 7]), self.n, range(self.size)
        shares = [(words.random_raw(n) >> np.uint64(11)) * 2.0**-53 for _ in ranks]
        if self.op.overlap == "same":
            shares = [shares[0]] * self.size
        left = [share < self.op.density for share in shares]
        if self.op.overlap == "apart":
            left = [kept & (np.arange(n) % self.size == rank) for rank, kept in enumerate(left)]
        return left

    def reduced(self, contributions: Sequence[Array]) -> Callable[[], Reduced]:
        """A judge finds what the schedule makes of contributions."""
        schedule, order = self.algorithm.schedule, self.op.order
        return self.attempt(lambda: self.runner.run(schedule, contributions, order), contributions)


def sparse_allreduce(algorithm: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A sum of vectors of all densities: the switch to dense comes at once, late or never."""
    size, length = pick(sizes), pick(pick(LENGTHS))
    values = pick(REGIMES if is_float(dtype) else WHOLE)
    op = SparseAllreduce(
        algorithm=algorithm, density=pick(DENSITIES), overlap=pick(OVERLAPS), order=pick(ANYTHING)
    )
    return Case(op, (Tensor((length,), dtype, values),) * size, seed=pick(ANYTHING))


def values(comm: Runner, case: Case) -> Judge:
    """Each rank's sum lies within the bar of any order of summation."""
    inquiry = SparseInquiry("values", comm, case)
    answer = inquiry.reduced(inquiry.arrays)
    arrays, dtype, size = inquiry.arrays, inquiry.dtype, inquiry.size
    everything = np.array(arrays, np.float64)

    def judged() -> Judgement:
        op = Allreduce(algorithm=LIBRARY)
        judgement, bounds = tightest(
            classes(case.dtype), lambda a: forward_bounds(op, arrays, a), answer().results
        )
        without = [
            (np.delete(everything, rank, axis=0).sum(axis=0),) * size
            for rank in range(size if size > 1 else 0)
            if np.any(everything[rank])
        ]

        def lowered() -> Sequence[Array | None]:
            if is_float(dtype):
                return lower_precision(op, arrays, None, dtype)
            return without[0] if without else ()

        judgement = inquiry.within(judgement, bounds, "a rank has a wrong sum", lowered)
        tells = judgement.telling and all(rejects(bounds, wrong) for wrong in without)
        return replace(judgement, telling=tells)

    return judged


def agreement(comm: Runner, case: Case) -> Judge:
    """All ranks have the same bits, but for those of a NaN."""
    inquiry = SparseInquiry("agreement", comm, case)
    answer = inquiry.reduced(inquiry.arrays)
    return lambda: inquiry.equal(answer().results)


def census(comm: Runner, case: Case) -> Judge:
    """Each item of each rank is counted once, at its place, at every rank; no other is.

    Rank r contributes a digit of its own, as in `d5test.distributed.checks.census`.
    """
    inquiry = SparseInquiry("census", comm, case)
    bits = format_of(inquiry.dtype).precision if is_float(inquiry.dtype) else 62
    digits, size, dtype = bits // 2, inquiry.size, dtype_of(inquiry.dtype)
    every = []
    for first in range(0, size, digits):
        counted = range(first, min(first + digits, size))
        contributions = [
            (support * (BASE ** (rank - first) if rank in counted else 0)).astype(dtype)
            for rank, support in enumerate(inquiry.supports)
        ]
        every.append((counted, inquiry.reduced(contributions)))

    def judged() -> Judgement:
        for counted, answer in every:
            for rank in counted:
                for at, result in enumerate(answer().results):
                    unit = float(BASE) ** (rank - counted.start)
                    counts = result.astype(np.float64) // unit % BASE
                    wrong = counts != inquiry.supports[rank]
                    if np.any(wrong):
                        element = int(np.flatnonzero(wrong)[0])
                        want = int(inquiry.supports[rank][element])
                        raise inquiry.fault(
                            "census", "an item is not counted as it should be",
                            whose=f"rank {rank}'s", where=f"element [{element}] at rank {at}",
                            counted=f"{counts[element]:g} times, not {want}",
                            sum=str(result[element]),
                        )  # fmt: skip
        return RIGHT

    return judged


def volume(comm: Runner, case: Case) -> Judge:
    """Messages and bytes are those of the formulas, of every rank; no two items cancel."""
    inquiry = SparseInquiry("volume", comm, case)
    contributions = ByRank(inquiry.size, lambda rank: np.abs(inquiry.arrays[rank]))
    answer = inquiry.reduced(contributions)

    def judged() -> Judgement:
        traffic = inquiry.sent(answer())
        algorithm, itemsize = inquiry.algorithm, dtype_of(inquiry.dtype).itemsize
        sent = algorithm.sent([x != 0 for x in contributions], itemsize)
        expected = {
            "messages": (sum(t.messages for t in traffic), 2 * algorithm.streams(inquiry.size)),
            **{f"bytes of rank {r}": (traffic[r].bytes, want) for r, want in enumerate(sent)},
        }
        return inquiry.costs(expected, algorithm.source)

    return judged


_row = partial(SparseProperty, dtypes=DTYPES, one=sparse_allreduce)
_ROWS = (
    _row("sparse_values", single(values), kind="value"),
    _row("sparse_agreement", single(agreement)),
    _row("sparse_census", single(census)),
    _row("sparse_volume", single(volume)),
)
SPARSE: Mapping[str, SparseProperty] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""
