"""How a framework is known to err: by more than its arithmetic explains, and by no more than this.

A known inaccuracy does not hide a result: it widens the bars where it applies, and what is beyond
those is a fault as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from d5test.numerics.arithmetic import Arithmetic, format_of


@dataclass(frozen=True)
class ErrorModel:
    """What is computed otherwise.

    name        what it is called in a summary
    arithmetic  the format in which the whole operator is computed: `float32`, say; empty: its own
    ulps        elementary functions (NumPy's or SciPy's ufuncs) and their errors in ULPs of the
                result
    absolute    elementary functions and what they err besides, in ULPs of 1
    formula     another formula that is computed, of `d5test.reference.formulas`
    """

    name: str
    arithmetic: str = ""
    ulps: Mapping[str, float] = field(default_factory=dict)
    absolute: Mapping[str, float] = field(default_factory=dict)
    formula: str = ""

    def of(self, arithmetic: Arithmetic) -> Arithmetic:
        """`arithmetic` with these errors."""
        coarser: dict[str, Any] = {}
        if self.arithmetic:
            computed = format_of(self.arithmetic)
            if computed.precision < arithmetic.primitive.precision:
                coarser = {"primitive": computed, "sums": computed}
        return replace(
            arithmetic,
            **coarser,
            ulps=_larger(arithmetic.ulps, self.ulps),
            absolute=_larger(arithmetic.absolute, self.absolute),
            formula=self.formula or arithmetic.formula,
            model=" + ".join(filter(None, (arithmetic.model, self.name))),
        )


def attempts(classes: Sequence[Arithmetic], models: Sequence[ErrorModel]) -> Iterator[Arithmetic]:
    """Each class plainly, with each of the models, and with all of them."""
    for arithmetic in classes:
        yield arithmetic
        for model in models:
            yield model.of(arithmetic)
        if len(models) > 1:
            for model in models:
                arithmetic = model.of(arithmetic)
            yield arithmetic


def _larger(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {*one, *other}}
