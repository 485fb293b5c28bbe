"""How cases get into the corpus: drawn from the strategies with a fixed seed, the best kept.

Requirements: what is in the corpus stays; cases are added only where a cell (operator, dtype) has
none. The choices are Philox words, not Hypothesis', whose streams change with its version. A case
is kept if its bars reject what is obviously wrong; the first ones of a cell ask for little, the
others show what no case before them shows.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import log2, prod
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from d5test.case import Array, Arrays, Case, Operator, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import (
    Bound,
    Bounds,
    double,
    forward_bounds,
    gradient_bounds,
    lower_precision,
)
from d5test.numerics.judgement import pairs, ratios, telling
from d5test.problems import Problem
from d5test.problems.corpus import Corpus, digest
from d5test.reference.operators import OPERATORS
from d5test.strategies import Draw, case_with
from d5test.strategies.draw import Shape

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

T = TypeVar("T")

COUNTS: Mapping[str, int] = {"float64": 2, "float32": 4, "float16": 3, "bfloat16": 3}
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
STORAGE: Mapping[str, str] = {"float16": "float32", "bfloat16": "tf32"}
"""The dtype whose next lower precision is that of the 16-bit one; others have theirs."""
PORTABLE: Mapping[str, tuple[float, float]] = {
    "normal": (-2, 2),
    "heavy": (-8, 8),
    "nonzero": (0.25, 4),
    "positive": (0.25, 4),
    "offset": (999, 1001),
    "often": (-2, 2),
}
"""Float64 has every bit of these regimes, whose functions differ between machines in the last one:
there the values are uniform in an interval instead, which needs one product and one sum."""
INSTEAD: Mapping[str, tuple[Any, ...]] = {"borders": ("uniform", -8, 8), "unbounded": ("special",)}
"""What stands in float64 for regimes that are normal in part."""


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

    def any_of(self, choices: Sequence[T]) -> T:
        """See `Draw`."""
        return choices[self.integer(0, len(choices) - 1)]

    def sides(self, n: int, least: int = 1, most: int = 6, **options: bool) -> Shape:
        """See `Draw`."""
        reach = 1 if options.get("few") else self._reach
        return super().sides(n, least, most * reach, **options)


def _refused(*_: object) -> Any:
    raise TypeError("Hypothesis draws nothing here")


@dataclass(frozen=True)
class Candidate:
    """A case, and how good it is.

    telling  whether its bars reject what is obviously wrong
    whole    whether they judge every element, and none may be infinite
    reveals  the share of the outputs that show it if everything is computed in storage: those
             outside the bars of the tightest class
    terms    products, or elements, from which an output is made
    """

    case: Case
    telling: bool
    whole: bool
    reveals: float
    terms: float

    def merits(self, k: int) -> tuple[float, ...]:
        """How good it is as the k-th of a cell.

        The first two round, which results of inputs of few values need not, and ask for little, so
        that every framework can do them: few attributes that have not their defaults, few inputs.
        The second has sums as long as they get, to a factor of two. The others only show what
        those before them do not.
        """
        if k > 1:
            return ()
        op = self.case.op
        inputs = [tensor for tensor in self.case.inputs if tensor is not None]
        rounded = all(tensor.values[0] not in FEW for tensor in inputs)
        length = round(log2(max(self.terms, 1))) if k == 1 else 0
        changed = sum(getattr(op, f.name) != f.default for f in fields(op))
        return rounded, self.reveals > REVEALED, length, -changed - len(inputs)

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
    added = [
        Problem(f"{name}-{dtype}-{k}", case, f"corpus {corpus.version + 1}")
        for name, operator in OPERATORS.items()
        if not operator.random
        for dtype in COUNTS
        if (name, dtype) not in cells and any(drawn(operator, dtype, 1, seed))
        for k, case in enumerate(chosen(operator, dtype, seed))
    ]
    if not added:
        return corpus
    order = {name: i for i, name in enumerate(OPERATORS)}
    problems = sorted([*corpus.problems, *added], key=lambda p: order[p.case.op.name])
    data = {**corpus.data, **{p.name: digest(p.case) for p in added}}
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
        best = max(pool, key=lambda c: (c.telling, c.whole, *c.merits(k), len(c.shows - seen)))
        pool.remove(best)
        kept.append(best)
        seen |= best.shows
    return [candidate.case for candidate in kept]


def drawn(operator: type[Operator], dtype: str, reach: int, seed: int) -> Iterator[Case]:
    """What is drawn of a cell with sizes of this reach.

    Of an operator without floating-point inputs there is float32 alone: nothing in other dtypes.
    """
    name = f"{operator.__name__} {dtype} {reach} {seed}"
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    words = np.random.Philox(key=key)
    for _ in range(DRAWN):
        case = case_with(operator, Seeded(words, dtype, reach))
        if case.dtype == dtype:
            yield portable(case)


def candidates(operator: type[Operator], dtype: str, reach: int, seed: int) -> list[Candidate]:
    """The same without what tells nothing."""
    cases = dict.fromkeys(drawn(operator, dtype, reach, seed))
    return [candidate for case in cases if (candidate := examined(case)) is not None]


def portable(case: Case) -> Case:
    """The case; in float64 with regimes that have the same bits on every machine."""
    return replace(case, inputs=tuple(None if t is None else _portable(t) for t in case.inputs))


def _portable(tensor: Tensor) -> Tensor:
    regime, *parameters = tensor.values
    if tensor.dtype != "float64" or tensor.data is not None:
        return tensor
    if regime in INSTEAD:
        return replace(tensor, values=INSTEAD[regime])
    if regime == "scaled":
        bounds = (-(2.0 ** parameters[0]), 2.0 ** parameters[0])
    elif regime in PORTABLE:
        bounds = PORTABLE[regime]
    else:
        return tensor
    return replace(tensor, values=("uniform", *bounds))


def examined(case: Case) -> Candidate | None:
    """How good a case is; None where it is too large, or where its bars tell nothing."""
    if (case.op.multiplications(*case.shapes) or 0) > DEAREST or _size(case.shapes) > LARGEST:
        return None
    arrays = case.arrays()
    with np.errstate(all="ignore"):
        outputs = case.op(*(arrays if case.op.typed else double(arrays)))
    if _size([np.shape(y) for y in outputs]) > LARGEST:
        return None
    op, arithmetic = case.op, classes(case.dtype)[0]
    forward = forward_bounds(op, arrays, arithmetic)
    judged: list[tuple[Bounds, Arrays | None]] = [(forward, None)]
    if op.differentiable:
        grads = case.upstream(outputs)
    if op.differentiable and case.wanted and any(dy is not None for dy in grads):
        judged.append((gradient_bounds(op, arrays, grads, arithmetic), grads))
    lowered = partial(lower_precision, op, arrays, dtype=case.dtype)
    controls = [telling(bounds, arrays, partial(lowered, grads)) for bounds, grads in judged]
    if any(void for _, void in controls):
        return None
    present = [bound for bounds, _ in judged for bound in bounds if bound is not None]
    coarse = lower_precision(op, arrays, None, STORAGE.get(case.dtype, case.dtype))
    outside = [_outside(bound, y) for _, bound, y in pairs(forward, coarse)]
    terms = op.multiplications(*case.shapes) or _size(case.shapes)
    return Candidate(
        case,
        telling=all(tells for tells, _ in controls),
        whole=all(b.all_judged and not b.reaches_infinity for b in present),
        reveals=sum(map(np.count_nonzero, outside)) / max(sum(r.size for r in outside), 1),
        terms=terms / max(_size([np.shape(y) for y in outputs]), 1),
    )


def _outside(bound: Bound, y: Array) -> NDArray[np.bool_]:
    """Which elements of a result are beyond their bars: all, where it has another shape."""
    if y.shape != bound.value.shape:
        return np.ones(bound.value.shape, bool)
    return ratios(bound, y) > 1


def _size(shapes: Iterable[Shape | None]) -> int:
    return sum(prod(shape) for shape in shapes if shape is not None)
