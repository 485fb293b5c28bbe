"""Is a result right, how bad is a wrong one, and could its bars have rejected one?

A result is judged by the ratio of error and bar, element by element.

Every case answers, before it counts, whether its bars would have told what broken software
returns, the controls: zeros, ones, the mean everywhere, an input, and the reference computed in
the next lower precision, or with its elements displaced, where no precision changes it. A case
whose bars reject them all is telling; one whose bars reject none of the trivial ones is void, and
tells nothing about the backend.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.numerics.arithmetic import DOUBLE_ROUNDOFF, Arithmetic
from d5test.numerics.bounds import Array, Bound, Bounds
from d5test.numerics.rounding import Rounding

FIRST = 256
"""Elements of a large array that are looked at before the others."""


@dataclass(frozen=True)
class Judgement:
    """The worst element of a result. Right if `ratio` <= 1.

    ratio       error / bar; infinite where a bar of zero is missed
    share       elements that were judged, of all; the others have no bar
    shares      the same of each output or gradient by itself, by its name; see `share_of`
    output      which output or input gradient the worst element is in
    position    its index there
    got, want, bar
    arithmetic  the tightest class that holds the result ("" where there is one class only)
    model       the known error models without which it is beyond its bar ("" mostly)
    telling     whether the bars reject every control
    void        whether they reject none
    explained   of a wrong result: the bits of the arithmetic that explains it, 0 if none does;
                `None` if that is unknown
    cancelled   of a wrong result that none explains: whether a difference of numbers near 1 may
    flushed     of a wrong result: whether it is right where subnormal numbers are zero
    rounded_to  of a wrong result: a narrower format whose numbers all results are, where that is
                no chance; else empty
    read_as     of a wrong result: a narrower format to which the inputs were rounded first, or
                integers converted, if that makes it right; else empty
    reordered   of a wrong result: whether it has the numbers that are due, in another order
    rounding    how the outputs are rounded, as far as that is looked at
    """

    ratio: float = 0.0
    share: float = 1.0
    output: int = 0
    position: tuple[int, ...] = ()
    got: float = 0.0
    want: float = 0.0
    bar: float = 0.0
    arithmetic: str = ""
    model: str = ""
    telling: bool = False
    void: bool = False
    explained: int | None = None
    cancelled: bool = False
    flushed: bool = False
    rounded_to: str = ""
    read_as: str = ""
    reordered: bool = False
    rounding: Rounding = field(default_factory=Rounding)
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def converted(self) -> bool:
        """Whether what it was read as is a dtype of integers."""
        return "int" in self.read_as

    @property
    def right(self) -> bool:
        return self.ratio <= 1


def ratios(bound: Bound, got: Array) -> NDArray[np.float64]:
    """error / bar for each element; 0 where it is not judged.

    An infinity is demanded where even value - bar exceeds the largest number of the format, and
    allowed where value + bar does. A NaN never equals a number.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(got).astype(np.float64)
        error = np.abs(result - bound.exact)
        if bound.storage is None:  # beyond 2^53 float64 does not tell neighbours apart
            error = np.where(got == bound.value, 0.0, np.maximum(error, 1.0))
        ratio = np.where(error == 0, 0.0, error / bound.bar)
        ratio = np.where(np.isfinite(result), ratio, inf)
        if bound.storage is not None and bound.reaches_infinity:
            largest, size = bound.storage.largest, np.abs(bound.exact)
            same_infinity = np.isinf(result) & (np.sign(result) == np.sign(bound.exact))
            demanded = size - bound.bar > largest * (1 + bound.storage.u)
            allowed = size + bound.bar > largest
            ratio = np.where(same_infinity & allowed, 0.0, ratio)
            ratio = np.where(demanded & ~same_infinity, inf, ratio)
        if bound.exactly:
            nan, zero = np.isnan(bound.exact), (bound.exact == 0) & (result == 0)
            ratio = np.where(nan, np.where(np.isnan(result), 0.0, inf), ratio)
            ratio = np.where(zero & (np.signbit(result) != np.signbit(bound.exact)), inf, ratio)
        return ratio if bound.all_judged else np.where(bound.judged, ratio, 0.0)


def judge(bounds: Bounds, results: Sequence[Array | None], arithmetic: str = "") -> Judgement:
    """The worst element of all results; those without a bound or a result are passed over."""
    worst, judged, total = Judgement(ratio=-1.0, arithmetic=arithmetic), 0, 0
    for k, bound, got in pairs(bounds, results):
        ratio = ratios(bound, got)
        total += ratio.size
        judged += int(np.count_nonzero(bound.judged))
        if not ratio.size or ratio.max() <= worst.ratio:
            continue
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        worst = Judgement(
            float(ratio[at]), 1.0, k, at,
            _number(got[at]), _number(bound.value[at]), float(bound.bar[at]), arithmetic,
        )  # fmt: skip
    share = judged / total if total else 1.0
    return replace(worst, ratio=max(worst.ratio, 0.0), share=share)


def _number(element: Any) -> float:
    """An element as Python's number: a whole one as it is, of which a float loses digits."""
    return int(element) if np.asarray(element).dtype.kind in "iu" else float(element)


def share_of(bound: Bound) -> float:
    """The share of a result's elements that are judged: none where its bars hold zeros, too.

    Zeros are what a gradient is that was stopped. Where they are expected, up to what the float64
    of the reference itself errs, they are right.
    """
    if bound.storage is not None and not rejects((bound,), (np.zeros(bound.value.shape),)):
        noise = bound.bar * (DOUBLE_ROUNDOFF / bound.storage.u)
        if np.any(bound.judged & (np.abs(bound.value) > noise)):
            return 0.0
    return float(np.mean(bound.judged))


def pairs(bounds: Bounds, results: Sequence[Array | None]) -> Iterator[tuple[int, Bound, Array]]:
    """Number, bound and result where there are both."""
    for k, (bound, got) in enumerate(zip(bounds, results, strict=False)):
        if bound is not None and got is not None:
            yield k, bound, got


def tightest(
    classes: Sequence[Arithmetic],
    bounds: Callable[[Arithmetic], Bounds],
    results: Sequence[Array | None],
) -> tuple[Judgement, Bounds]:
    """The judgement in the first of `classes` that holds the results, else in the nearest.

    Of those that are equally near it is the last one that computes ONNX's formula.
    """
    attempts: list[tuple[float, bool, Judgement, Bounds]] = []
    for arithmetic in classes:
        expected = bounds(arithmetic)
        judgement = judge(expected, results, arithmetic.name)
        judgement = replace(judgement, model=arithmetic.model)
        if judgement.right:
            return judgement, expected
        attempts.insert(0, (judgement.ratio, bool(arithmetic.formula), judgement, expected))
    *_, judgement, expected = min(attempts, key=lambda attempt: attempt[:2])
    return judgement, expected


def rejects(bounds: Bounds, results: Sequence[Array | None]) -> bool:
    """Whether some element of `results` lies outside its bar; often one of the first does."""
    fitting = [(b, got) for _, b, got in pairs(bounds, results) if got.shape == b.value.shape]
    first = [
        (Bound(b.value.flat[:FIRST], b.bar.flat[:FIRST], b.storage), got.flat[:FIRST])
        for b, got in fitting
        if got.size > FIRST
    ]
    return any(bool(np.any(ratios(bound, got) > 1)) for bound, got in (*first, *fitting))


def trivial(bounds: Bounds, arrays: Sequence[Array | None]) -> Iterator[tuple[Array | None, ...]]:
    """Results that need no arithmetic: zeros, ones, the mean, and each input that fits."""
    present = [b for b in bounds if b is not None]
    yield tuple(None if b is None else np.zeros(b.value.shape) for b in bounds)
    yield tuple(None if b is None else np.ones(b.value.shape) for b in bounds)
    if present and all(b.value.size > 1 for b in present):
        with np.errstate(all="ignore"):
            means = [None if b is None else b.value.mean() for b in bounds]
        yield tuple(
            None if b is None else np.full(b.value.shape, mean)
            for b, mean in zip(bounds, means, strict=True)
        )
    for array in arrays:
        if array is not None and present and present[0].may_be(array):
            yield tuple(array if b is present[0] else None for b in bounds)


def telling(
    bounds: Bounds,
    arrays: Sequence[Array | None],
    lowered: Callable[[], Sequence[Array | None]],
) -> tuple[bool, bool]:
    """(telling, void) of the bars `bounds` on the inputs `arrays`.

    `lowered` computes the results in the next lower precision.
    """
    verdicts: set[bool] = set()
    for wrong in trivial(bounds, arrays):
        verdicts.add(rejects(bounds, wrong))
        if len(verdicts) == 2:
            return False, False
    return False not in verdicts and rejects(bounds, lowered()), True not in verdicts
