"""One case put to one communicator by one check: what all checks of this level share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.case import Case
from d5test.checks.check import Check
from d5test.distributed.communicator import Array, Communicator, Reduced
from d5test.distributed.raised import raised
from d5test.distributed.traffic import Stuck, WrongSize
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Evidence, Fault, Subject

RIGHT = Judgement(telling=True)
Pick = Callable[[Sequence[Any]], Any]
"""One of a sequence."""


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


class Inquiry:
    """A case, how many ranks it has, and what the first of their tensors is like."""

    def __init__(self, check: str, comm: Communicator, case: Case, size: int) -> None:
        tensor = case.inputs[0]
        assert tensor is not None
        self.comm = comm
        self.case = case
        self.size = size
        self.dtype = tensor.dtype
        (self.n,) = tensor.shape
        self.arrays = [array for array in case.arrays() if array is not None]
        self.subject = Subject(check, case, comm.about(size))

    def attempt(self, call: Callable[[], Reduced], like: Sequence[Array]) -> Reduced:
        """What `call` returns, for each rank something `like` that. All else is a fault."""
        before = [x.copy() for x in like]
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
        for rank, (x, was, got) in enumerate(zip(like, before, reduced.results, strict=True)):
            if not same(x, was):
                raise self.fault("mutated", "what was given was overwritten", rank=str(rank))
            if (got.dtype, got.shape) != (x.dtype, x.shape):
                raise self.fault(
                    "shape", "a rank has something else", rank=str(rank),
                    got=f"{got.dtype} {got.shape}", want=f"{x.dtype} {x.shape}",
                )  # fmt: skip
        return reduced

    def fault(
        self, kind: str, what: str, judgement: Judgement | None = None, **details: str
    ) -> Fault:
        """A fault of this case."""
        inputs = f"{self.dtype} ({self.n},) at each of {self.size} ranks"
        evidence = Evidence((), "within")
        told = {"check": f"{self.subject.check} in {self.dtype}", "inputs": inputs, **details}
        return self.subject.fault(kind, what, evidence, judgement, **told)

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
    return np.array_equal(_bits(x), _bits(y))


def _bits(x: Array) -> Array:
    raw = x.view(f"u{x.dtype.itemsize}").copy()
    if x.dtype.kind not in "iu":
        raw[np.isnan(x)] = np.iinfo(raw.dtype).max
    return raw
