"""How cases get into the corpus: drawn from the strategies with a fixed seed, the best kept.

Requirements: what is in the corpus stays; cases are added only where a cell (operator, dtype) has
none. The choices are Philox words, not Hypothesis', whose streams change with its version. A case
is kept if its bars reject what is obviously wrong; the first ones of a cell ask for little, the
others show what no case before them shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import log2, prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from d5test.case import Arrays, Case, Operator, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import (
    double,
    forward_bounds,
    gradient_bounds,
    lower_precision,
)
from d5test.numerics.controls import telling
from d5test.numerics.judgement import ratios
from d5test.problems.corpus import Corpus, digest
from d5test.problems.problem import Problem
from d5test.reference.operators import OPERATORS
from d5test.strategies import Draw, case_with, drawable
from d5test.strategies.draw import Shape

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

T = TypeVar("T")

COUNTS: Mapping[str, int] = MappingProxyType(
    {"float64": 2, "float32": 4, "float16": 3, "bfloat16": 3}
)
"""Cases of each operator, by dtype: half of them small, half of them with sums of some length."""
REACHES = (1, 4)
"""Factors of the largest sizes of the strategies: theirs, and where roundings add up."""
DRAWN = 64
"""Cases of each reach that are drawn to choose from."""
LARGEST = 20_000
"""Elements of all inputs and outputs, so that a case takes milliseconds."""
DEAREST = 2_000_000
"""Multiplications of the forward pass."""
FEW = ("onehot", "ties", "constant")
"""Regimes of few values, on which much arithmetic is exact."""
REVEALED = 0.1
"""The share of the outputs from which on a case is said to reveal arithmetic in storage."""
STORAGE: Mapping[str, str] = MappingProxyType({"float16": "float32", "bfloat16": "tf32"})
"""The dtype whose next lower precision is that of the 16-bit one; others have theirs."""

PORTABLE: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "normal": (-2, 2),
        "heavy": (-8, 8),
        "nonzero": (0.25, 4),
        "positive": (0.25, 4),
        "offset": (999, 1001),
    }
)
"""Float64 has every bit of these regimes, whose functions differ between machines in the last one:
there the values are uniform in an interval instead, which needs one product and one sum."""


class Seeded(Draw):
    """A draw that chooses by Philox words, each choice as likely as the others.

    `reach` multiplies the largest size of each dimension.
    """

    def __init__(self, words: np.random.Philox, dtype: str, reach: int) -> None:
        super().__init__(cast("DrawFn", _refused), dtype)
        self._words = words
        self._reach = reach

    def integer(self, low: int, high: int) -> int:
        """See `Draw`."""
        return low + int(self._words.random_raw()) % (high - low + 1)

    def flag(self) -> bool:
        """See `Draw`."""
        return bool(self.integer(0, 1))

    def choose(self, options: Iterable[T]) -> T:
        """See `Draw`."""
        choices = tuple(options)
        return choices[self.integer(0, len(choices) - 1)]

    def sides(self, n: int, least: int = 1, most: int = 6, *, empty: bool = False) -> Shape:
        """See `Draw`."""
        return super().sides(n, least, most * self._reach, empty=empty)


def _refused(*_: object) -> Any:
    raise TypeError("Hypothesis draws nothing here")


@dataclass(frozen=True)
class Candidate:
    """A case, and how good it is.

    telling  whether its bars reject what is obviously wrong
    whole    whether they judge every element, and none may be infinite
    reveals  the share of the outputs that show it if everything is computed in storage
    terms    products, or elements, from which an output is made
    """

    case: Case
    telling: bool
    whole: bool
    reveals: float
    terms: float

    @property
    def rounds(self) -> bool:
        """Whether no input is of few values, so that results have to be rounded."""
        return all(t is None or t.values[0] not in FEW for t in self.case.inputs)

    @property
    def wishes(self) -> int:
        """Attributes that have not their defaults, and inputs."""
        op, inputs = self.case.op, self.case.inputs
        changed = [f.name for f in fields(op) if getattr(op, f.name) != f.default]
        return len(changed) + sum(tensor is not None for tensor in inputs)

    @property
    def shows(self) -> frozenset[object]:
        """What it would bring: values of attributes; regime, rank and presence of each input."""
        case = self.case
        of_inputs = {
            (i, None) if t is None else (i, t.values, len(t.shape))
            for i, t in enumerate(case.inputs)
        }
        return frozenset(case.op.attributes.items()) | of_inputs | {len(case.inputs)}


def extended(corpus: Corpus, seed: int = 0) -> Corpus:
    """The corpus with cases for each cell that has none, and then of the next version."""
    cells = {(p.case.op.name, p.case.dtype) for p in corpus.problems}
    known = {cls.__name__ for cls in drawable()}
    found = [
        Problem(f"{name}-{dtype}-{k}", case, f"corpus {corpus.version + 1}")
        for name in OPERATORS
        if name in known
        for dtype in COUNTS
        if (name, dtype) not in cells
        for k, case in enumerate(chosen(OPERATORS[name], dtype, seed))
    ]
    if not found:
        return corpus
    order = {name: i for i, name in enumerate(OPERATORS)}
    problems = sorted([*corpus.problems, *found], key=lambda p: order[p.case.op.name])
    data = {**corpus.data, **{p.name: digest(p.case) for p in found}}
    first = corpus.seed if corpus.version else seed
    return Corpus(corpus.version + 1, first, tuple(problems), data)


def chosen(operator: type[Operator], dtype: str, seed: int) -> list[Case]:
    """The cases of a cell: the best that were drawn, each unlike those before it."""
    pools = [candidates(operator, dtype, reach, seed) for reach in REACHES]
    kept: list[Candidate] = []
    seen: set[object] = set()
    for k in range(COUNTS[dtype]):
        pool = pools[k % len(pools)] or max(pools, key=len)
        if not pool:
            raise LookupError(f"no case of {operator.__name__} in {dtype} tells anything")
        rank = RANKS[k] if k < len(RANKS) else novel
        best = max(pool, key=lambda c: (c.telling, c.whole, *rank(c), len(c.shows - seen)))
        pool.remove(best)
        kept.append(best)
        seen |= best.shows
    return [candidate.case for candidate in kept]


def plain(candidate: Candidate) -> tuple[float, ...]:
    """The first of a cell rounds, and asks for little, so that every framework can do it."""
    return candidate.rounds, candidate.reveals > REVEALED, -candidate.wishes


def long(candidate: Candidate) -> tuple[float, ...]:
    """The second has sums as long as they get, to a factor of two, and asks for little."""
    length = round(log2(max(candidate.terms, 1)))
    return candidate.rounds, candidate.reveals > REVEALED, length, -candidate.wishes


def novel(candidate: Candidate) -> tuple[float, ...]:
    """The others show what those before them do not."""
    return ()


RANKS = (plain, long)


def candidates(operator: type[Operator], dtype: str, reach: int, seed: int) -> list[Candidate]:
    """What is drawn of a cell with sizes of this reach, without what tells nothing."""
    name = f"{operator.__name__} {dtype} {reach} {seed}"
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    words = np.random.Philox(key=key)
    found: dict[Case, Candidate] = {}
    for _ in range(DRAWN):
        case = portable(case_with(operator, Seeded(words, dtype, reach)))
        if case not in found and (candidate := examined(case)) is not None:
            found[case] = candidate
    return list(found.values())


def portable(case: Case) -> Case:
    """The case; in float64 with regimes that have the same bits on every machine."""
    return replace(case, inputs=tuple(None if t is None else _portable(t) for t in case.inputs))


def _portable(tensor: Tensor) -> Tensor:
    regime, *parameters = tensor.values
    if tensor.dtype != "float64" or tensor.data is not None:
        return tensor
    if regime == "scaled":
        size = 2.0 ** parameters[0]
        return replace(tensor, values=("uniform", -size, size))
    bounds = PORTABLE.get(regime)
    return tensor if bounds is None else replace(tensor, values=("uniform", *bounds))


def examined(case: Case) -> Candidate | None:
    """How good a case is; None where it is too large, or where its bars tell nothing."""
    if (case.op.multiplications(*case.shapes) or 0) > DEAREST or _size(case.shapes) > LARGEST:
        return None
    arrays = case.arrays()
    with np.errstate(all="ignore"):
        outputs = case.op(*double(arrays))
    if _size([np.shape(y) for y in outputs]) > LARGEST:
        return None
    asked = [told(case, arrays, None)]
    if case.op.differentiable:
        asked.append(told(case, arrays, case.upstream(outputs)))
    if any(void for _, void, _ in asked):
        return None
    every = all(tells for tells, _, _ in asked), all(whole for _, _, whole in asked)
    terms = case.op.multiplications(*case.shapes) or _size(case.shapes)
    size = max(_size([np.shape(y) for y in outputs]), 1)
    return Candidate(case, *every, revealed(case, arrays), terms / size)


def revealed(case: Case, arrays: Arrays) -> float:
    """See `Candidate.reveals`: the share of outputs outside the bars of the tightest class."""
    bounds = forward_bounds(case.op, arrays, classes(case.dtype)[0])
    coarse = lower_precision(case.op, arrays, None, STORAGE.get(case.dtype, case.dtype))
    pairs = zip(bounds, coarse, strict=True)
    found = [ratios(b, y) > 1 for b, y in pairs if b is not None and y is not None]
    return sum(map(np.count_nonzero, found)) / max(sum(r.size for r in found), 1)


def told(case: Case, arrays: Arrays, grads: Arrays | None) -> tuple[bool, bool, bool]:
    """Whether the bars tell, whether they are void, and whether they judge every element.

    With `grads` they are the gradients'.
    """
    op, arithmetic = case.op, classes(case.dtype)[0]
    bounds = (
        forward_bounds(op, arrays, arithmetic)
        if grads is None
        else gradient_bounds(op, arrays, grads, arithmetic)
    )
    tells, void = telling(bounds, arrays, lambda: lower_precision(op, arrays, grads, case.dtype))
    present = [bound for bound in bounds if bound is not None]
    return tells, void, all(b.all_judged and not b.reaches_infinity for b in present)


def _size(shapes: Iterable[Shape | None]) -> int:
    return sum(prod(shape) for shape in shapes if shape is not None)
