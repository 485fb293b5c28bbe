"""What must hold of an allreduce, on every communicator: a function a property.

Each takes a communicator and a case (whose operator is `Allreduce`), and returns a judgement or
raises a fault. Under mpirun every rank knows the results of all, and finds the same fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from d5test.case import Case, dtype_of, is_float
from d5test.checks.check import Check
from d5test.checks.fault import Evidence, Fault, Subject, judgement_in_words
from d5test.distributed.communicator import DTYPES, Array, Communicator, Reduced
from d5test.distributed.traffic import Stuck, WrongSize
from d5test.numerics.arithmetic import Arithmetic, classes, format_of
from d5test.numerics.bounds import Bounds, forward_bounds, lower_precision
from d5test.numerics.controls import rejects, telling
from d5test.numerics.judgement import Judgement, tightest
from d5test.reference.collectives import ALLREDUCE

RIGHT = Judgement(telling=True)


class Inquiry:
    """One case put to one communicator by one check."""

    def __init__(self, check: str, comm: Communicator, case: Case) -> None:
        self.comm = comm
        self.case = case
        self.size = len(case.inputs)
        self.dtype = _dtype(case)
        self.subject = Subject(check, case, comm.about(self.size))
        self.contributions = [tensor for tensor in case.arrays() if tensor is not None]

    def ask(self, contributions: list[Array]) -> Reduced:
        """What the ranks have afterwards. Stuck ranks and misfitting messages are faults."""
        op, before = self.case.op, [x.copy() for x in contributions]
        try:
            with np.errstate(all="ignore"):
                reduced = self.comm.allreduce(op, contributions)  # type: ignore[arg-type]
        except Stuck as stuck:
            each = {f"rank {rank}": words for rank, words in enumerate(stuck.whereabouts)}
            raise self.fault("deadlock", "the ranks are stuck", None, **each) from None
        except WrongSize as wrong:
            raise self.fault("size", "a message has the wrong size", message=str(wrong)) from None
        for rank, (x, was) in enumerate(zip(contributions, before, strict=True)):
            if not _same(x, was):
                raise self.fault("mutated", "a contribution was overwritten", rank=str(rank))
        for rank, result in enumerate(reduced.results):
            has, want = (result.dtype, result.shape), (before[rank].dtype, before[rank].shape)
            if has != want:
                raise self.fault(
                    "shape",
                    "a rank has something else",
                    rank=str(rank),
                    got=str(has),
                    want=str(want),
                )
        return reduced

    def fault(
        self, kind: str, what: str, judgement: Judgement | None = None, **details: str
    ) -> Fault:
        """A fault of this case."""
        (n,) = self.contributions[0].shape
        inputs = f"{self.dtype} ({n},) at each of {self.size} ranks"
        evidence = Evidence((), "within")
        return self.subject.fault(kind, what, evidence, judgement, inputs=inputs, **details)


def values(comm: Communicator, case: Case) -> Judgement:
    """Each rank's sum lies within the bar of its order of summation."""
    inquiry = Inquiry("values", comm, case)
    results = inquiry.ask(inquiry.contributions).results
    return comm.agree(lambda: _within_bars(inquiry, results))


def _within_bars(inquiry: Inquiry, results: tuple[Array, ...]) -> Judgement:
    case = inquiry.case
    judgement, bounds = tightest(
        classes(case.dtype), lambda a: _bounds(inquiry, a), tuple(results)
    )
    if not judgement.right:
        words = judgement_in_words(judgement)
        words["worst"] = words["worst"].replace(" of ", " of rank ")
        raise inquiry.fault("value", "a rank has a wrong sum", judgement, **words)
    tells, void = telling(bounds, inquiry.contributions, lambda: _coarse(inquiry))
    tells = tells and all(rejects(bounds, wrong) for wrong in _incomplete(inquiry))
    return replace(judgement, telling=tells, void=void or judgement.share == 0)


def agreement(comm: Communicator, case: Case) -> Judgement:
    """All ranks have the same bits, but for those of a NaN."""
    inquiry = Inquiry("agreement", comm, case)
    results = inquiry.ask(inquiry.contributions).results
    odd = [str(rank) for rank, x in enumerate(results) if not _same(x, results[0])]
    if odd:
        first = results[int(odd[0])]
        at = int(np.flatnonzero(_bits(first) != _bits(results[0]))[0])
        raise inquiry.fault(
            "disagreement", "ranks have different sums", ranks=f"{', '.join(odd)} differ from 0",
            element=f"[{at}] is {results[0][at]} on rank 0, {first[at]} on rank {odd[0]}",
        )  # fmt: skip
    return RIGHT


def census(comm: Communicator, case: Case) -> Judgement:
    """Each rank's contribution is counted once, in every element, at every rank.

    Rank `r` contributes a digit of its own of base 4, so that the sum is a list of counts, exact
    in every dtype; where its digits do not suffice for all ranks, the others follow.
    """
    inquiry = Inquiry("census", comm, case)
    bits = format_of(inquiry.dtype).precision if is_float(inquiry.dtype) else 62
    digits, size = bits // 2, inquiry.size
    for first in range(0, size, digits):
        counted = range(first, min(first + digits, size))
        results = inquiry.ask(
            [np.full_like(x, 4 ** (rank - first) if rank in counted else 0)
             for rank, x in enumerate(inquiry.contributions)]
        ).results  # fmt: skip
        for rank in counted:
            for at, result in enumerate(results):
                counts = result.astype(np.float64) // 4.0 ** (rank - first) % 4
                if np.any(counts != 1):
                    element = int(np.flatnonzero(counts != 1)[0])
                    raise inquiry.fault(
                        "census", "a contribution is not counted once",
                        whose=f"rank {rank}'s", where=f"element [{element}] at rank {at}",
                        counted=f"{counts[element]:g} times", sum=str(result[element]),
                    )  # fmt: skip
    return RIGHT


def volume(comm: Communicator, case: Case) -> Judgement:
    """Messages and bytes are what the algorithm's formulas say."""
    inquiry = Inquiry("volume", comm, case)
    algorithm = ALLREDUCE[case.op.algorithm]  # type: ignore[attr-defined]
    (n,), size = inquiry.contributions[0].shape, inquiry.size
    itemsize = dtype_of(inquiry.dtype).itemsize
    traffic = inquiry.ask(inquiry.contributions).traffic
    if traffic is None:
        raise TypeError(f"{inquiry.subject.about.name} does not count what it sends")
    expected = {
        "messages": (sum(t.messages for t in traffic), algorithm.messages(size)),
        "bytes": (sum(t.bytes for t in traffic), algorithm.items(size, n) * itemsize),
    }
    # chunks are of equal size only where every number of them that occurs divides n
    if n % size == 0 and n % (1 << size.bit_length() - 1) == 0:
        busiest = max(t.bytes for t in traffic)
        expected["bytes of the busiest rank"] = (busiest, algorithm.busiest(size, n) * itemsize)
    for what, (got, want) in expected.items():
        if got != want:
            raise inquiry.fault(
                "volume", "it does not send what it should", of=what, got=str(got),
                want=str(want), formula=algorithm.source,
            )  # fmt: skip
    return RIGHT


def _dtype(case: Case) -> str:
    tensor = case.inputs[0]
    assert tensor is not None
    return tensor.dtype


def _bounds(inquiry: Inquiry, arithmetic: Arithmetic) -> Bounds:
    return forward_bounds(inquiry.case.op, inquiry.contributions, arithmetic)


def _coarse(inquiry: Inquiry) -> tuple[Array | None, ...]:
    """The sums in the next lower precision; those of whole numbers without a rank."""
    if is_float(inquiry.dtype):
        return lower_precision(inquiry.case.op, inquiry.contributions, None, inquiry.dtype)
    return next(_incomplete(inquiry), ())


def _incomplete(inquiry: Inquiry) -> Iterator[tuple[Array, ...]]:
    """The sums without one of the ranks, which a bar must reject."""
    everything = np.array(inquiry.contributions, np.float64)
    with np.errstate(all="ignore"):
        for rank in range(inquiry.size if inquiry.size > 1 else 0):
            yield (np.delete(everything, rank, axis=0).sum(axis=0),) * inquiry.size


def _bits(x: Array) -> Array:
    raw = x.view(f"u{x.dtype.itemsize}").copy()
    if x.dtype.kind not in "iu":
        raw[np.isnan(x)] = np.iinfo(raw.dtype).max
    return raw


def _same(x: Array, y: Array) -> bool:
    return np.array_equal(_bits(x), _bits(y))


COLLECTIVE: Mapping[str, Check] = MappingProxyType(
    {
        check.name: check
        for check in (
            Check("values", values, DTYPES, "value"),
            Check("agreement", agreement, DTYPES),
            Check("census", census, DTYPES),
            Check("volume", volume, DTYPES),
        )
    }
)
"""By name, in the order in which they run."""
