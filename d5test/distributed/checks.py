"""What must hold of an allreduce, on every communicator: one function per property.

Each takes a communicator and a case (whose operator is `Allreduce`), asks the ranks, and returns
a `Judge`, which reads what came of it. Under mpirun one of the processes judges a case for all.

Cases are drawn by Hypothesis, or, where ranks must agree, come from a table: a case is described
once, by what a `Pick` picks out of sequences.
"""

from __future__ import annotations

import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d5test.case import Case, Tensor, dtype_of, is_float
from d5test.checks.check import Check
from d5test.distributed.communicator import (
    DTYPES,
    LIBRARY,
    Allreduce,
    Array,
    ByRank,
    Communicator,
    Processes,
    Reduced,
    Stuck,
    Traffic,
    WrongSize,
)
from d5test.distributed.judges import Judge, single
from d5test.numerics.arithmetic import classes, format_of
from d5test.numerics.bounds import Bounds, forward_bounds, lower_precision
from d5test.numerics.judgement import Judgement, rejects, telling, tightest
from d5test.outcome.fault import Evidence, Fault, Subject, judgement_in_words
from d5test.reference.collectives import ALLREDUCE

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

RIGHT = Judgement(telling=True)
Pick = Callable[[Sequence[Any]], Any]
"""One of a sequence."""
ANYTHING = range(10_000)
"""Seeds, and orders of delivery."""
REGIMES = (("normal",), ("heavy",), ("offset",), ("nonzero",), ("ties",), ("tiny",))
HUGE = (("huge",),)
"""Whether a sum of these overflows depends on its order, which a library does not tell."""
WHOLE = (("within", 1000), ("ties",))
LARGE = (1000, 4099)
"""Lengths at which a library may take another algorithm than for a few elements."""


@dataclass(frozen=True, kw_only=True)
class Property(Check):
    """A check of the ranks' results.

    subjects  the algorithms or optimizers of which it is asked
    one       `(subject, dtype, sizes, pick)`: a case, by what `pick` picks
    least     ranks without which it says nothing
    measures  what its judgements' `got` is, of which the largest is reported
    """

    subjects: tuple[str, ...]
    one: Callable[[str, str, Sequence[int], Pick], Case]
    least: int = 1
    measures: str = ""

    def done_in(self, comm: Communicator, subject: str) -> tuple[str, ...]:
        """The dtypes in which a communicator does what this is asked of; none if it does not."""
        return comm.dtypes(subject)


class RanksInquiry:
    """A case, how many ranks it has, and what the first of their tensors is like."""

    def __init__(self, check: str, comm: Communicator, case: Case, size: int) -> None:
        tensor = case.inputs[0]
        assert tensor is not None
        self.comm = comm
        self.case = case
        self.size = size
        self.dtype = tensor.dtype
        (self.n,) = tensor.shape
        inputs = [tensor for tensor in case.inputs if tensor is not None]
        self.lengths = [tensor.shape[0] for tensor in inputs]
        self.here = (comm.comm.rank,) if isinstance(comm, Processes) else range(size)
        self.arrays = ByRank(len(inputs), lambda i: inputs[i].array(case.seed, i))
        self.subject = Subject(check, case, comm.about(size))

    def attempt(
        self, call: Callable[[], Reduced], like: Sequence[Array], here: Sequence[int] = ()
    ) -> Callable[[], Reduced]:
        """Call it; a judge finds what it returns, for each rank something `like` that.

        All else is a fault. This process runs the ranks `here`, usually its own.
        """
        before = {rank: like[rank].copy() for rank in here or self.here}
        try:
            with np.errstate(all="ignore"):
                reduced = call()
        except Stuck as stuck:
            each = {f"rank {rank}": words for rank, words in enumerate(stuck.whereabouts)}
            raise self.fault("deadlock", "the ranks are stuck", None, **each) from None
        except WrongSize as wrong:
            raise self.fault("size", "a message has the wrong size", message=str(wrong)) from None
        except Exception as error:
            words = raised(error)
            if not words:
                raise
            raise self.fault("exception", "a rank raised", message=words) from None
        for rank, was in before.items():
            if not same(like[rank], was):
                raise self.fault("mutated", "what was given was overwritten", rank=str(rank))

        def answer() -> Reduced:
            for rank, (x, got) in enumerate(zip(like, reduced.results, strict=True)):
                if (got.dtype, got.shape) != (x.dtype, x.shape):
                    raise self.fault(
                        "shape", "a rank has something else", rank=str(rank),
                        got=f"{got.dtype} {got.shape}", want=f"{x.dtype} {x.shape}",
                    )  # fmt: skip
            return reduced

        return answer

    def fault(
        self, kind: str, what: str, judgement: Judgement | None = None, **details: str
    ) -> Fault:
        """A fault of this case."""
        words = {
            "check": f"{self.subject.check} in {self.dtype}",
            "inputs": f"{self.dtype} ({self.n},) at each of {self.size} ranks",
            **details,
        }
        return self.subject.fault(kind, what, Evidence((), "within"), judgement, **words)

    def within(
        self,
        judgement: Judgement,
        bounds: Bounds,
        wrong: str,
        lowered: Callable[[], Sequence[Array | None]],
    ) -> Judgement:
        """The judgement and what its bounds tell, or the fault where a result is outside.

        `lowered` has the results in the next lower precision, `wrong` the words of the fault.
        """
        if not judgement.right:
            words = judgement_in_words(judgement, self.case.dtype)
            words["worst"] = words["worst"].replace("result ", "rank ")
            raise self.fault("value", wrong, judgement, **words)
        tells, void = telling(bounds, self.arrays, lowered)
        return replace(judgement, telling=tells, void=void or judgement.share == 0)

    def equal(self, results: Sequence[Array]) -> Judgement:
        """All ranks have the same bits, but for those of a NaN."""
        odd = [rank for rank, x in enumerate(results) if not same(x, results[0])]
        if odd:
            first, other = results[0], results[odd[0]]
            at = int(np.flatnonzero(_bits(first) != _bits(other))[0])
            raise self.fault(
                "disagreement", "ranks have different results",
                ranks=f"{', '.join(map(str, odd))} differ from 0",
                element=f"[{at}] is {first[at]} on rank 0, {other[at]} on rank {odd[0]}",
            )  # fmt: skip
        return RIGHT

    def sent(self, reduced: Reduced) -> Sequence[Traffic]:
        """What each rank has sent, of a communicator that counts it."""
        if reduced.traffic is None:
            raise TypeError(f"{self.subject.about.name} does not count what it sends")
        return reduced.traffic

    def costs(self, expected: dict[str, tuple[int, int]], formula: str) -> Judgement:
        """What was sent, by name (got, want), is what the formula says."""
        for what, (got, want) in expected.items():
            if got != want:
                raise self.fault(
                    "volume", "it does not send what it should", of=what, got=str(got),
                    want=str(want), formula=formula,
                )  # fmt: skip
        return RIGHT


def same(x: Array, y: Array) -> bool:
    """Whether two arrays have the same bits; one NaN is as good as another."""
    return x.tobytes() == y.tobytes() or np.array_equal(_bits(x), _bits(y))


def _bits(x: Array) -> Array:
    raw = x.view(f"u{x.dtype.itemsize}").copy()
    if x.dtype.kind not in "iu":
        with np.errstate(invalid="ignore"):  # a signalling NaN
            raw[np.isnan(x)] = np.iinfo(raw.dtype).max
    return raw


def drawn(check: Property, subject: str, sizes: Sequence[int], dtype: str) -> SearchStrategy[Case]:
    """Cases as Hypothesis draws them: small ones when it shrinks."""
    from hypothesis.strategies import composite, sampled_from

    @composite
    def cases(draw: DrawFn) -> Case:
        return check.one(subject, dtype, sizes, lambda choices: draw(sampled_from(choices)))

    return cases()


def table(
    check: Property, subject: str, sizes: Sequence[int], dtype: str, seed: int
) -> Iterator[Case]:
    """Cases without end, the same ones in every process."""
    chance = random.Random(f"{subject} {dtype} {seed}")
    while True:
        yield check.one(subject, dtype, sizes, chance.choice)


INSIDE = frozenset({"d5test", *sys.stdlib_module_names})
"""Packages whose frames are d5test's and Python's."""


@cache
def ours() -> frozenset[str]:
    """Packages whose frames are nobody's schedule: d5test, Python's own, and those required."""
    required = (re.match(r"[\w-]+", line) for line in requires("d5test") or ())
    return INSIDE | {name[0].replace("-", "_") for name in required if name}


def raised(error: BaseException, own: frozenset[str] | None = None) -> str:
    """The exception and the stranger's innermost line; empty if none of the lines is a stranger's.

    own  packages whose lines are no stranger's; by default `ours`

    >>> raised(error)
    "NameError: name 'size' is not defined, at mine.py:17 in ring"
    """
    own = ours() if own is None else own
    frames = [
        (Path(frame.f_code.co_filename).name, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in own
    ]
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{type(error).__name__}: {error}, at {file}:{line} in {function}"


def allreduce(algorithm: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A sum. Lengths shorter than the ranks are many are frequent."""
    size = pick(sizes)
    near = (size - 1, size, size + 1, 2 * size)
    length = pick(pick((range(4), near, range(71), LARGE)))
    known = HUGE if algorithm != LIBRARY else ()
    values = pick((*REGIMES, *known) if is_float(dtype) else WHOLE)
    op = Allreduce(algorithm=algorithm, order=pick(ANYTHING))
    return Case(op, (Tensor((length,), dtype, values),) * size, seed=pick(ANYTHING))


def values(comm: Communicator, case: Case) -> Judge:
    """Each rank's sum lies within the bar of its order of summation."""
    inquiry = RanksInquiry("values", comm, case, len(case.inputs))
    op, arrays, dtype = case.op, inquiry.arrays, inquiry.dtype
    answer = _ask(inquiry, arrays)

    def lowered() -> tuple[Array | None, ...]:
        if is_float(dtype):
            return lower_precision(op, arrays, None, dtype)
        return next(_incomplete(inquiry), ())

    def judged() -> Judgement:
        judgement, bounds = tightest(
            classes(case.dtype), lambda a: forward_bounds(op, arrays, a), answer().results
        )
        judgement = inquiry.within(judgement, bounds, "a rank has a wrong sum", lowered)
        tells = judgement.telling and all(rejects(bounds, wrong) for wrong in _incomplete(inquiry))
        return replace(judgement, telling=tells)

    return judged


def agreement(comm: Communicator, case: Case) -> Judge:
    """All ranks have the same bits, but for those of a NaN."""
    inquiry = RanksInquiry("agreement", comm, case, len(case.inputs))
    answer = _ask(inquiry, inquiry.arrays)
    return lambda: inquiry.equal(answer().results)


def census(comm: Communicator, case: Case) -> Judge:
    """Each rank's contribution is counted once, in every element, at every rank.

    Rank `r` contributes a digit of its own of base 4, so that the sum is a list of counts, exact
    in every dtype; where its digits do not suffice for all ranks, the others follow.
    """
    inquiry = RanksInquiry("census", comm, case, len(case.inputs))
    bits = format_of(inquiry.dtype).precision if is_float(inquiry.dtype) else 62
    digits, size, dtype = bits // 2, inquiry.size, dtype_of(inquiry.dtype)
    every = []
    for first in range(0, size, digits):
        counted = range(first, min(first + digits, size))
        contributions = [
            np.full(inquiry.n, 4 ** (rank - first) if rank in counted else 0, dtype)
            for rank in range(size)
        ]
        every.append((counted, _ask(inquiry, contributions)))

    def judged() -> Judgement:
        for counted, answer in every:
            for rank in counted:
                for at, result in enumerate(answer().results):
                    counts = result.astype(np.float64) // 4.0 ** (rank - counted.start) % 4
                    if np.any(counts != 1):
                        element = int(np.flatnonzero(counts != 1)[0])
                        raise inquiry.fault(
                            "census", "a contribution is not counted once",
                            whose=f"rank {rank}'s", where=f"element [{element}] at rank {at}",
                            counted=f"{counts[element]:g} times", sum=str(result[element]),
                        )  # fmt: skip
        return RIGHT

    return judged


def volume(comm: Communicator, case: Case) -> Judge:
    """Messages and bytes are what the algorithm's formulas say."""
    inquiry = RanksInquiry("volume", comm, case, len(case.inputs))
    algorithm = ALLREDUCE[case.op.attributes["algorithm"]]
    n, size, itemsize = inquiry.n, inquiry.size, dtype_of(inquiry.dtype).itemsize
    answer = _ask(inquiry, inquiry.arrays)

    def judged() -> Judgement:
        traffic = inquiry.sent(answer())
        expected = {
            "messages": (sum(t.messages for t in traffic), algorithm.messages(size)),
            "bytes": (sum(t.bytes for t in traffic), algorithm.items(size, n) * itemsize),
        }
        # chunks are of equal size only where every number of them that occurs divides n
        if n % size == 0 and n % (1 << size.bit_length() - 1) == 0:
            busiest = max(t.bytes for t in traffic)
            want = algorithm.busiest(size, n) * itemsize
            expected["bytes of the busiest rank"] = (busiest, want)
        return inquiry.costs(expected, algorithm.source)

    return judged


def _ask(inquiry: RanksInquiry, contributions: Sequence[Array]) -> Callable[[], Reduced]:
    op: Any = inquiry.case.op
    return inquiry.attempt(lambda: inquiry.comm.allreduce(op, contributions), contributions)


def _incomplete(inquiry: RanksInquiry) -> Iterator[tuple[Array, ...]]:
    """The sums without one of the ranks, which a bar must reject."""
    everything = np.array(inquiry.arrays, np.float64)
    with np.errstate(all="ignore"):
        for rank in range(inquiry.size if inquiry.size > 1 else 0):
            yield (np.delete(everything, rank, axis=0).sum(axis=0),) * inquiry.size


_row = partial(Property, dtypes=DTYPES, subjects=(*ALLREDUCE, LIBRARY), one=allreduce)
_ROWS = (
    _row("values", single(values), kind="value"),
    _row("agreement", single(agreement)),
    _row("census", single(census)),
    _row("volume", single(volume), subjects=(*ALLREDUCE,)),  # a library does not say what it sends
)
COLLECTIVE: Mapping[str, Property] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""
