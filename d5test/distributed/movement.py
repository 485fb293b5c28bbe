"""What must hold of every collective: it follows from what each rank must have.

As `d5test.distributed.checks`, for cases whose operator is `Collective`. A row of
`d5test.reference.semantics` says what is right; nothing here is about one collective, but for the
barrier, which moves nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Case, Tensor, dtype_of, is_float
from d5test.distributed.checks import (
    ANYTHING,
    LARGE,
    REGIMES,
    RIGHT,
    WHOLE,
    Pick,
    Property,
    RanksInquiry,
)
from d5test.distributed.collective import PAD, Collective, places, program
from d5test.distributed.communicator import (
    DTYPES,
    LIBRARY,
    Array,
    ByRank,
    Groups,
    Reduced,
    poison,
    subjects,
)
from d5test.distributed.judges import Judge, single
from d5test.numerics.arithmetic import classes, format_of
from d5test.numerics.bounds import Bounds, forward_bounds, lower_precision
from d5test.numerics.judgement import Judgement, rejects, tightest
from d5test.outcome.fault import Fault
from d5test.reference.schedules import SCHEDULES
from d5test.reference.semantics import COLLECTIVES, Meaning

PATTERNS = (*(("octets", first) for first in range(0, 256, 8)), ("special",), ("special", 3))
"""Any bits: numbers of all magnitudes, subnormal ones, infinities and each kind of NaN."""


class CollectiveInquiry(RanksInquiry):
    """One case of `Collective` put to one communicator."""

    def __init__(self, check: str, comm: Any, case: Case) -> None:
        assert isinstance(case.op, Collective)
        super().__init__(check, comm, case, len(case.inputs))
        self.op, self.places, self.asked = case.op, places(case.op), comm

    def ask(self, arrays: Sequence[Array], *, clocked: bool = True) -> Callable[[], Reduced]:
        """Ask; a judge finds what the ranks have after, of what they have before.

        All else is a fault.
        """
        buffers = ByRank(len(arrays), lambda rank: self._buffer(rank, arrays[rank]))
        answer = self.attempt(partial(self._call, buffers, clocked), buffers)
        return lambda: self._within_room(buffers, answer())

    def _within_room(self, buffers: Sequence[Array], reduced: Reduced) -> Reduced:
        results = []
        for rank, (before, after) in enumerate(zip(buffers, reduced.results, strict=True)):
            spot = self.places.get(rank)
            kept = np.ones(len(before), bool)
            if spot is not None:
                # in place, what is left of a sum's contribution may be anything
                kept[spot.x] = not (spot.overlaps and self.op.meaning.adds)
                kept[spot.y] = False
            if np.any(odd := kept & (bits(before) != bits(after))):
                raise self._overwritten(rank, before, after, int(np.flatnonzero(odd)[0]))
            results.append(after[:0] if spot is None else after[spot.y])
        return replace(reduced, results=tuple(results))

    def _call(self, buffers: Sequence[Array], clocked: bool) -> Reduced:
        if self.op.algorithm == LIBRARY:
            reduced: Reduced = self.asked.collective(self.op, self.places, buffers)
            return reduced
        body = self.asked.schedules[self.op.collective][self.op.algorithm].body
        ran: Reduced = self.asked.run(
            program(self.op, body, clocked=clocked), buffers, self.op.order
        )
        return ran

    def _buffer(self, rank: int, x: Array) -> Array:
        spot = self.places.get(rank)
        buffer = np.full(2 * PAD if spot is None else spot.size, poison(x.dtype), x.dtype)
        if spot is not None:
            buffer[spot.x] = x
        return buffer

    def _overwritten(self, rank: int, before: Array, after: Array, at: int) -> Fault:
        spot = self.places.get(rank)
        if spot is not None and spot.x.start <= at < spot.x.stop:
            return self.fault(
                "mutated", "what was given was overwritten",
                where=f"element [{at - spot.x.start}] of what rank {rank} has",
                got=str(after[at]), want=str(before[at]),
            )  # fmt: skip
        return self.fault(
            "overrun", "a rank wrote beyond its room", where=f"rank {rank}", got=str(after[at])
        )

    def fault(
        self, kind: str, what: str, judgement: Judgement | None = None, **details: str
    ) -> Fault:
        """A fault of this case."""
        groups = " and ".join(str(group) for group in self.op.groups)
        counts = " and ".join(str(counts) for counts in self.op.counts)
        words = {"inputs": f"{self.dtype}, counts {counts}, of the ranks {groups}"}
        return super().fault(kind, what, judgement, **{**words, **details})


def bits(x: Array) -> Array:
    """All bits of each element, as a whole number."""
    return x.view(f"u{x.dtype.itemsize}")


def moves(comm: Any, case: Case) -> Judge:
    """Each rank has exactly the data that it must have, bit for bit: a NaN is data, too."""
    inquiry = CollectiveInquiry("moves", comm, case)
    answer = inquiry.ask(inquiry.arrays)

    def judged() -> Judgement:
        wanted = inquiry.op.forward(*inquiry.arrays)
        for rank, (got, want) in enumerate(zip(answer().results, wanted, strict=True)):
            if np.any(odd := bits(got) != bits(want)):
                at = int(np.flatnonzero(odd)[0])
                raise inquiry.fault(
                    "data", "a rank has the wrong data", where=f"element [{at}] at rank {rank}",
                    got=f"{got[at]} ({bits(got)[at]:#x})",
                    want=f"{want[at]} ({bits(want)[at]:#x})",
                )  # fmt: skip
        return RIGHT

    return judged


def sums(comm: Any, case: Case) -> Judge:
    """Each rank's sum lies within the bar of any order; where all have it, they have its bits."""
    inquiry = CollectiveInquiry("sums", comm, case)
    op, arrays, dtype = inquiry.op, inquiry.arrays, inquiry.dtype
    answer = inquiry.ask(arrays)

    def bounds(arithmetic: Any) -> Bounds:
        every = forward_bounds(op, arrays, arithmetic)
        return tuple(bound if bound is not None and bound.value.size else None for bound in every)

    def lowered() -> Sequence[Array | None]:
        if is_float(dtype):
            return lower_precision(op, arrays, None, dtype)
        return next(_incomplete(inquiry), ())

    def judged() -> Judgement:
        results = answer().results
        if op.collective == "allreduce":
            for group in op.groups:
                inquiry.equal([results[rank] for rank in group])
        judgement, expected = tightest(classes(case.dtype), bounds, results)
        judgement = inquiry.within(judgement, expected, "a rank has a wrong sum", lowered)
        tells = judgement.telling and all(rejects(expected, w) for w in _incomplete(inquiry))
        return replace(judgement, telling=tells)

    return judged


def _incomplete(inquiry: CollectiveInquiry) -> Iterator[Sequence[Array]]:
    """The sums without one of the ranks, which a bar must reject."""
    everything = [x.astype(np.float64) for x in inquiry.arrays]
    for group in inquiry.op.groups:
        for rank in group if len(group) > 1 else ():
            without = [0 * x if r == rank else x for r, x in enumerate(everything)]
            yield inquiry.op.forward(*without)


def positions(comm: Any, case: Case) -> Judge:
    """Each contribution is counted once, at exactly the rank and the place where it is due.

    Contributions carry digits of sender and position, so many at a time as a number of the dtype
    holds exactly.
    """
    inquiry = CollectiveInquiry("positions", comm, case)
    return (_added if inquiry.op.meaning.adds else _moved)(inquiry)


def _bits_of(dtype: str) -> int:
    """Whole numbers below 2 to this power are exact, and so they are in float64."""
    return format_of(dtype).precision if is_float(dtype) else 52


def _moved(inquiry: CollectiveInquiry) -> Judge:
    """All elements of all ranks are numbered from 1 on; a few bits of the number go at once."""
    sizes = inquiry.lengths
    ends = np.cumsum(sizes)
    numbers = np.split(np.arange(1, ends[-1] + 1), ends[:-1])
    bits, every = _bits_of(inquiry.dtype), []
    for low in range(0, int(ends[-1]).bit_length(), bits):
        digits = [(n >> low & (1 << bits) - 1).astype(dtype_of(inquiry.dtype)) for n in numbers]
        every.append((low, inquiry.ask(digits)))

    def whose(number: int) -> str:
        if not 1 <= number <= ends[-1]:
            return "what no rank has"
        rank = int(np.searchsorted(ends, number))
        return f"element [{number - 1 - int(ends[rank]) + sizes[rank]}] of rank {rank}"

    def judged() -> Judgement:
        wanted = inquiry.op.forward(*numbers)
        got = [0 * y for y in wanted]
        for low, answer in every:
            for rank, y in enumerate(answer().results):
                with np.errstate(invalid="ignore"):  # poison
                    digit = y.astype(np.float64)
                    odd = ~((digit >= 0) & (digit < 1 << bits)) | (got[rank] < 0)
                    got[rank] = np.where(odd, -1, got[rank] + (digit.astype(np.int64) << low))
        for rank, (y, want) in enumerate(zip(got, wanted, strict=True)):
            if np.any(y != want):
                at = int(np.flatnonzero(y != want)[0])
                raise inquiry.fault(
                    "census", "a contribution is not where it is due",
                    where=f"element [{at}] at rank {rank}", got=whose(int(y[at])),
                    want=whose(int(want[at])),
                )  # fmt: skip
        return RIGHT

    return judged


def _added(inquiry: CollectiveInquiry) -> Judge:
    """Rank `r` has a digit of its own, of base 4, in the elements whose position has a bit.

    So each sum is a list of counts, and of all sums of all bits no two places have the same.
    """
    digits, size = _bits_of(inquiry.dtype) // 2, inquiry.size
    longest, every = max(inquiry.lengths), []
    for first in range(0, size, digits):
        counted = range(first, min(first + digits, size))
        for bit in range(longest.bit_length()):
            marked = [
                (np.arange(1, length + 1) >> bit & 1) * (rank in counted)
                << 2 * max(rank - first, 0)
                for rank, length in enumerate(inquiry.lengths)
            ]
            contributions = [m.astype(dtype_of(inquiry.dtype)) for m in marked]
            every.append((counted, marked, inquiry.ask(contributions)))

    def judged() -> Judgement:
        for counted, marked, answer in every:
            wanted = inquiry.op.forward(*marked)
            for at, (y, want) in enumerate(zip(answer().results, wanted, strict=True)):
                if np.any(odd := y.astype(np.float64) != want):
                    element = int(np.flatnonzero(odd)[0])
                    raise _miscounted(inquiry, counted, at, element, y[element], want[element])
        return RIGHT

    return judged


def _miscounted(
    inquiry: CollectiveInquiry, counted: range, at: int, element: int, got: Any, want: Any
) -> Fault:
    details = {"where": f"element [{element}] at rank {at}", "sum": f"{got}, not {want}"}
    for rank in counted:
        place = 4.0 ** (rank - counted.start)
        times, due = (float(n) // place % 4 for n in (got, want))
        if times != due:
            details["whose"] = f"rank {rank}'s"
            details["counted"] = f"{times:g} times, not {due:g}"
            break
    return inquiry.fault("census", "a contribution is not counted once", None, **details)


def cost(comm: Any, case: Case) -> Judge:
    """Messages and bytes are what the algorithm's formulas say."""
    inquiry = CollectiveInquiry("cost", comm, case)
    op, itemsize = inquiry.op, dtype_of(inquiry.dtype).itemsize
    answer = inquiry.ask(inquiry.arrays, clocked=False)

    def judged() -> Judgement:
        sent, row = inquiry.sent(answer()), SCHEDULES[op.collective][op.algorithm]
        expected: dict[str, tuple[int, int]] = {}
        for number, layout in enumerate(op.layouts):
            ours = [sent[rank] for rank in op.groups[number]]
            messages = sum(t.messages for t in ours), row.messages(layout)
            bytes_ = sum(t.bytes for t in ours), row.items(layout) * itemsize
            expected[f"messages in group {number}"] = messages
            expected[f"bytes in group {number}"] = bytes_
        idle = [t for rank, t in enumerate(sent) if rank not in inquiry.places]
        expected["messages of ranks in no group"] = (sum(t.messages for t in idle), 0)
        return inquiry.costs(expected, f"SCHEDULES[{op.collective!r}][{op.algorithm!r}]")

    return judged


def entry(comm: Any, case: Case) -> Judge:
    """No rank leaves a barrier before the last has entered, by what it can know."""
    inquiry = CollectiveInquiry("entry", comm, case)
    answer = inquiry.ask(inquiry.arrays)

    def judged() -> Judgement:
        results = answer().results
        for group in inquiry.op.groups:
            for rank in group:
                missing = [who for who, in_ in zip(group, results[rank], strict=True) if in_ != 1]
                if missing:
                    raise inquiry.fault(
                        "barrier", "a rank left before all had entered", rank=str(rank),
                        missing=f"the entry of {', '.join(map(str, missing))}",
                    )  # fmt: skip
        return RIGHT

    return judged


def grouped(size: int, pick: Pick) -> Groups:
    """All ranks, mostly; in another order; two groups at once; all but the first."""
    every = tuple(range(size))
    others: list[Groups] = [(every[::-1],), (every[::2], every[1::2]), (every[1:],)]
    groups: Groups = pick(((every,), (every,), *(others if size > 1 else ())))
    return groups


def collective(
    subject: str, dtype: str, sizes: Sequence[int], pick: Pick, *, large: bool = False
) -> Case:
    """Any root, groups and counts; those by rank are equal in every second case."""
    name, algorithm = subject.split("-")
    meaning, groups = COLLECTIVES[name], grouped(size := pick(sizes), pick)
    in_place = meaning.overlap is not None and pick((False, True))
    alike = pick((True, False)) or (in_place and meaning.even and meaning.counted == "rank")
    near = (size - 1, size, size + 1)
    n = pick(pick((range(4), near, range(48), *([LARGE] if large else []))))

    def counts(p: int) -> tuple[int, ...]:
        if meaning.counted == "one":
            return (n,)
        if alike:
            return (n,) * (p if meaning.counted == "rank" else p * p)
        if meaning.counted == "rank":
            return tuple(pick(range(6)) for _ in range(p))
        pairs = [[pick(range(4)) for _ in range(p)] for _ in range(p)]
        return tuple(
            pairs[min(i, j)][max(i, j)] if in_place else pairs[i][j]
            for i in range(p)
            for j in range(p)
        )

    op = Collective(
        collective=name, algorithm=algorithm, groups=groups,
        counts=tuple(counts(len(group)) for group in groups),
        root=pick(range(size)) if meaning.rooted else 0, in_place=in_place, order=pick(ANYTHING),
    )  # fmt: skip
    lengths = dict.fromkeys(range(size), 0)
    for group, layout in zip(groups, op.layouts, strict=True):
        lengths |= {r: have for r, (have, _) in zip(group, meaning.sizes(layout), strict=True)}
    if meaning.adds:
        values = pick(REGIMES if is_float(dtype) else WHOLE)
    else:
        values = pick(PATTERNS) if is_float(dtype) else ("bits",)
    inputs = tuple(Tensor((lengths[rank],), dtype, values) for rank in range(size))
    return Case(op, inputs, seed=pick(ANYTHING))


SUBJECTS = tuple(subjects(SCHEDULES))
"""Collectives by our algorithms."""
EVERY = (*SUBJECTS, *(f"{name}-{LIBRARY}" for name in COLLECTIVES))
"""And by a library's own."""


def _of(choose: Callable[[str, Meaning], bool], names: Sequence[str] = EVERY) -> tuple[str, ...]:
    return tuple(
        name
        for name in names
        if choose(name.partition("-")[0], COLLECTIVES[name.partition("-")[0]])
    )


_row = partial(Property, dtypes=DTYPES, one=collective)
_ROWS = (
    _row("moves", single(moves), subjects=_of(lambda name, m: not m.adds and name != "barrier"),
         one=partial(collective, large=True)),
    _row("sums", single(sums), kind="value", subjects=_of(lambda _, m: m.adds),
         one=partial(collective, large=True)),
    _row("positions", single(positions), dtypes=("float32", "float16"),
         subjects=_of(lambda name, _: name != "barrier")),
    _row("cost", single(cost), dtypes=("float32",), subjects=SUBJECTS),
    _row("entry", single(entry), dtypes=("float32",),
         subjects=_of(lambda name, _: name == "barrier")),
)  # fmt: skip
"""A library does not say what it sends."""
MOVEMENT: Mapping[str, Property] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""
