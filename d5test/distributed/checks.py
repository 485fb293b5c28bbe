"""What must hold of an allreduce, on every communicator: a function a property.

Each takes a communicator and a case (whose operator is `Allreduce`), and returns a judgement or
raises a fault. Under mpirun every rank knows the results of all, and finds the same fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.case import Case, dtype_of, is_float
from d5test.distributed.allreduce import LIBRARY
from d5test.distributed.cases import allreduce
from d5test.distributed.communicator import DTYPES, Array, Communicator, Reduced
from d5test.distributed.inquiry import RIGHT, Inquiry, Property
from d5test.numerics.arithmetic import classes, format_of
from d5test.numerics.bounds import forward_bounds, lower_precision
from d5test.numerics.controls import rejects, telling
from d5test.numerics.judgement import Judgement, tightest
from d5test.outcome.fault import judgement_in_words
from d5test.reference.collectives import ALLREDUCE


def values(comm: Communicator, case: Case) -> Judgement:
    """Each rank's sum lies within the bar of its order of summation."""
    inquiry = Inquiry("values", comm, case, len(case.inputs))
    results = _ask(inquiry, inquiry.arrays).results
    return comm.agree(lambda: _within_bars(inquiry, results))


def _within_bars(inquiry: Inquiry, results: tuple[Array, ...]) -> Judgement:
    op, arrays = inquiry.case.op, inquiry.arrays
    judgement, bounds = tightest(
        classes(inquiry.case.dtype), lambda a: forward_bounds(op, arrays, a), results
    )
    if not judgement.right:
        words = judgement_in_words(judgement, inquiry.case.dtype)
        words["worst"] = words["worst"].replace("result ", "rank ")
        raise inquiry.fault("value", "a rank has a wrong sum", judgement, **words)
    tells, void = telling(bounds, arrays, lambda: _coarse(inquiry))
    tells = tells and all(rejects(bounds, wrong) for wrong in _incomplete(inquiry))
    return replace(judgement, telling=tells, void=void or judgement.share == 0)


def agreement(comm: Communicator, case: Case) -> Judgement:
    """All ranks have the same bits, but for those of a NaN."""
    inquiry = Inquiry("agreement", comm, case, len(case.inputs))
    return inquiry.equal(_ask(inquiry, inquiry.arrays).results)


def census(comm: Communicator, case: Case) -> Judgement:
    """Each rank's contribution is counted once, in every element, at every rank.

    Rank `r` contributes a digit of its own of base 4, so that the sum is a list of counts, exact
    in every dtype; where its digits do not suffice for all ranks, the others follow.
    """
    inquiry = Inquiry("census", comm, case, len(case.inputs))
    bits = format_of(inquiry.dtype).precision if is_float(inquiry.dtype) else 62
    digits, size = bits // 2, inquiry.size
    for first in range(0, size, digits):
        counted = range(first, min(first + digits, size))
        contributions = [
            np.full_like(x, 4 ** (rank - first) if rank in counted else 0)
            for rank, x in enumerate(inquiry.arrays)
        ]
        results = _ask(inquiry, contributions).results
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
    inquiry = Inquiry("volume", comm, case, len(case.inputs))
    algorithm = ALLREDUCE[case.op.attributes["algorithm"]]
    n, size, itemsize = inquiry.n, inquiry.size, dtype_of(inquiry.dtype).itemsize
    traffic = _ask(inquiry, inquiry.arrays).traffic
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
    return inquiry.costs(expected, algorithm.source)


def _ask(inquiry: Inquiry, contributions: list[Array]) -> Reduced:
    op: Any = inquiry.case.op
    return inquiry.attempt(lambda: inquiry.comm.allreduce(op, contributions), contributions)


def _coarse(inquiry: Inquiry) -> tuple[Array | None, ...]:
    """The sums in the next lower precision; those of whole numbers without a rank."""
    if is_float(inquiry.dtype):
        return lower_precision(inquiry.case.op, inquiry.arrays, None, inquiry.dtype)
    return next(_incomplete(inquiry), ())


def _incomplete(inquiry: Inquiry) -> Iterator[tuple[Array, ...]]:
    """The sums without one of the ranks, which a bar must reject."""
    everything = np.array(inquiry.arrays, np.float64)
    with np.errstate(all="ignore"):
        for rank in range(inquiry.size if inquiry.size > 1 else 0):
            yield (np.delete(everything, rank, axis=0).sum(axis=0),) * inquiry.size


_ALL = (*ALLREDUCE, LIBRARY)

COLLECTIVE: Mapping[str, Property] = MappingProxyType(
    {
        check.name: check
        for check in (
            Property("values", values, DTYPES, "value", subjects=_ALL, one=allreduce),
            Property("agreement", agreement, DTYPES, subjects=_ALL, one=allreduce),
            Property("census", census, DTYPES, subjects=_ALL, one=allreduce),
            # a library does not say what it sends
            Property("volume", volume, DTYPES, subjects=(*ALLREDUCE,), one=allreduce),
        )
    }
)
"""By name, in the order in which they run."""
