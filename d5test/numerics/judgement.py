"""Is a result right? The ratio of error and bar, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Array, Bound, Bounds


@dataclass(frozen=True)
class Judgement:
    """The worst element of a result. Right if `ratio` <= 1.

    ratio       error / bar; infinite where a bar of zero is missed
    share       elements that were judged, of all; the others have no bar
    output      which output or input gradient the worst element is in
    position    its index there
    got, want, bar
    arithmetic  the tightest class that holds the result ("" where there is one class only)
    model       the known error models without which it is beyond its bar ("" mostly)
    telling     whether the bars reject every control: see `controls`
    void        whether they reject none
    explained   of a wrong result: the bits of the arithmetic that explains it, 0 if none does;
                `None` if that is unknown (`numerics.character`)
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

    @property
    def right(self) -> bool:
        return self.ratio <= 1


def ratios(bound: Bound, got: Array) -> NDArray[np.float64]:
    """error / bar for each element; 0 where it is not judged.

    An infinity is demanded where even value - bar exceeds the largest number of the format, and
    allowed where value + bar does. A NaN never equals a number.
    """
    with np.errstate(all="ignore"):
        given = np.asarray(got).astype(np.float64)
        error = np.abs(given - bound.exact)
        ratio = np.where(error == 0, 0.0, error / bound.bar)
        ratio = np.where(np.isfinite(given), ratio, inf)
        if bound.storage is not None and bound.reaches_infinity:
            largest, size = bound.storage.largest, np.abs(bound.exact)
            same_infinity = np.isinf(given) & (np.sign(given) == np.sign(bound.exact))
            demanded = size - bound.bar > largest * (1 + bound.storage.u)
            allowed = size + bound.bar > largest
            ratio = np.where(same_infinity & allowed, 0.0, ratio)
            ratio = np.where(demanded & ~same_infinity, inf, ratio)
        return ratio if bound.all_judged else np.where(bound.judged, ratio, 0.0)


def judge(bounds: Bounds, results: Sequence[Array | None], arithmetic: str = "") -> Judgement:
    """The worst element of all results; those without a bound or a result are passed over."""
    worst, judged, total = Judgement(ratio=-1.0), 0, 0
    for k, (bound, got) in enumerate(zip(bounds, results, strict=False)):
        if bound is None or got is None:
            continue
        ratio = ratios(bound, got)
        total += ratio.size
        judged += int(np.count_nonzero(bound.judged))
        if not ratio.size or ratio.max() <= worst.ratio:
            continue
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        worst = Judgement(
            float(ratio[at]), 1.0, k, at,
            float(got[at]), float(bound.value[at]), float(bound.bar[at]), arithmetic,
        )  # fmt: skip
    share = judged / total if total else 1.0
    return Judgement(
        max(worst.ratio, 0.0), share, worst.output, worst.position,
        worst.got, worst.want, worst.bar, arithmetic,
    )  # fmt: skip


def tightest(
    classes: Sequence[Arithmetic],
    bounds: Callable[[Arithmetic], Bounds],
    results: Sequence[Array | None],
) -> tuple[Judgement, Bounds]:
    """The judgement in the first of `classes` that holds the results, else in the nearest.

    Of those that are equally near it is the last one that computes ONNX's formula.
    """
    found: list[tuple[float, bool, Judgement, Bounds]] = []
    for arithmetic in classes:
        expected = bounds(arithmetic)
        judgement = judge(expected, results, arithmetic.name)
        judgement = replace(judgement, model=arithmetic.model)
        if judgement.right:
            return judgement, expected
        found.insert(0, (judgement.ratio, bool(arithmetic.formula), judgement, expected))
    *_, judgement, expected = min(found, key=lambda each: each[:2])
    return judgement, expected
