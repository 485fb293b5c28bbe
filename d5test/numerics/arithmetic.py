"""How a backend may compute: formats, unit roundoffs, the three arithmetic classes, error models.

For 16-bit storage a framework may round the output alone (class F: float32 inside), every
primitive with sums in float32 (P), or everything (S). For float32 and float64 the three are one.

A framework may be known to err by more than its arithmetic explains. Such an error model does not
hide a result: it widens the bars where it applies, and what is beyond those is a fault as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import floor, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.case import dtype_of
from d5test.numerics.elementary import TABLE
from d5test.values import finfo

DOUBLE_ROUNDOFF = 2.0**-53
"""Unit roundoff of the arithmetic in which the references themselves run."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format. `precision` counts the bits of the significand."""

    name: str
    precision: int
    largest: float
    smallest_normal: float
    smallest_subnormal: float

    @cached_property
    def u(self) -> float:
        """Unit roundoff: the largest relative error of rounding to nearest."""
        return float(2.0**-self.precision)

    def bits_of(self, x: float) -> int:
        """The bits of the significand of a number next to x: subnormal ones have fewer."""
        if not self.smallest_subnormal <= abs(x) < self.smallest_normal:
            return self.precision
        return 1 + floor(log2(abs(x) / self.smallest_subnormal))


@cache
def format_of(name: str) -> Format:
    """The format called `name`: a dtype's, or `tf32` (float32's range with 11 bits)."""
    info = finfo(np.float32 if name == "tf32" else dtype_of(name))
    return Format(
        name,
        11 if name == "tf32" else int(info.nmant) + 1,
        float(info.max),
        float(info.smallest_normal),
        float(info.smallest_subnormal),
    )


NEXT_LOWER = {"float64": 24, "float32": 11, "tf32": 8, "float16": 8, "bfloat16": 4}
"""Bits of the next lower precision, which a bar must be able to reject."""

NARROWER: Mapping[int, str] = {8: "bfloat16", 11: "float16 or TF32", 24: "float32"}
"""By their bits, formats in which frameworks compute what they store in a wider one."""

EXPLAINED: Mapping[str, str] = {
    "F": "only the output is rounded to storage",
    "P": "every primitive is rounded to storage, sums run in float32",
    "S": "everything, sums too, runs in storage",
}


@dataclass(frozen=True)
class Payment:
    """What rounding adds to a bar: `error` of a size, `eta`, and what is flushed to zero.

    `flushed` is the largest size at which a result may become zero, which moves it by its own
    size; what becomes zero on the way to it is in `eta`.
    All are arrays of no axes: NumPy would convert a Python number at each use.
    Bars that have paid, and whose squares sum up to at most `ample`, belong to no result that may
    overflow: |value| + bar is at most 1 + 1 / error times what was paid.
    """

    error: NDArray[np.float64]
    eta: NDArray[np.float64]
    ample: float
    flushed: NDArray[np.float64]


@dataclass(frozen=True)
class Arithmetic:
    """The roundings that a bar pays for.

    storage      format of inputs and outputs
    primitive    format to which every primitive's result is rounded
    sums         format in which sums of products and reductions run
    products     format to which the factors of matrix products are rounded first (`tf32`)
    flushes      results below the smallest normal number may become zero
    independent  the data were drawn independent with random signs, so that the errors of long
                 sums grow like a random walk (Higham and Mary, SIAM J. Sci. Comput. 2019)
    ties         equal numbers count as uncertainly ordered, so that every subgradient of a
                 kink is accepted
    masks        infinities that a formula makes itself are exact, in gradients too
    ulps         elementary functions that are granted more than the common table says
    rounded_attributes
                 the operator's attributes are known to the 32 bits in which ONNX stores them
    absolute     those that besides err by so many ULPs of 1, however small their result is
    infinite     an input is infinite somewhere, so that each primitive has to look for that
    formula      the formula that is computed, of `reference.formulas`; empty: ONNX's
    model        the known error models that are in here; empty: none
    """

    name: str
    storage: Format
    primitive: Format
    sums: Format
    products: Format | None = None
    flushes: bool = False
    independent: bool = False
    ties: bool = False
    masks: bool = False
    ulps: Mapping[str, float] = field(default_factory=dict)
    rounded_attributes: bool = False
    absolute: Mapping[str, float] = field(default_factory=dict)
    infinite: bool = False
    formula: str = ""
    model: str = ""
    _summations: dict[tuple[int, int], Payment] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @cached_property
    def u(self) -> float:
        """What a primitive pays: the backend's roundoff and that of the reference itself."""
        return self.primitive.u + DOUBLE_ROUNDOFF

    @cached_property
    def eta(self) -> float:
        """What a primitive pays for underflow, of its result and on the way to it."""
        return self.primitive.smallest_subnormal + self._flushed(self.primitive)

    @cached_property
    def output(self) -> Payment:
        """What an output pays when it is stored: one ULP."""
        eta, flushed = self.storage.smallest_subnormal, self._flushed(self.storage)
        return self._payment(2 * self.storage.u, eta, flushed)

    @cached_property
    def granted(self) -> Mapping[Any, Payment]:
        """What each elementary function pays, of its result's size."""
        return {function: self._granted(function, row.ulps) for function, row in TABLE.items()}

    def _granted(self, function: Any, ulps: float) -> Payment:
        name, ulp = function.__name__, 2 * self.u
        error = ulp * max(ulps, self.ulps.get(name, 0.0))
        absolute = ulp * self.absolute.get(name, 0.0)
        if function in (np.add, np.subtract):  # an argument may be flushed, and the result not
            return self._payment(error, self.eta + absolute)
        eta = self.primitive.smallest_subnormal + absolute
        return self._payment(error, eta, self._flushed(self.primitive))

    def summation(self, terms: int, stages: int = 1) -> Payment:
        """What a sum of `terms` pays, of the sum of magnitudes.

        Where sums are wider than primitives, the terms may be rounded as primitives in each of
        `stages`: as products, and as partial sums over one axis that the next primitive adds up.
        """
        if (terms, stages) not in self._summations:
            error = self.sum_error(terms) + stages * self.term_error(terms)
            self._summations[terms, stages] = self._payment(error, terms * self.eta)
        return self._summations[terms, stages]

    def term_error(self, terms: int) -> float:
        """Relative error, against the sum of magnitudes, if each of `terms` is rounded once more.

        u, or of independent terms 6 u / sqrt(terms), as for `sum_error`.
        """
        if self.sums.precision <= self.primitive.precision or terms <= 1:
            return 0.0
        return self.u * (min(1.0, 6 / sqrt(terms)) if self.independent else 1.0)

    @cached_property
    def after_sum(self) -> Payment:
        """A sum in a wider format is rounded once more, to a primitive's."""
        wider = self.sums.precision > self.primitive.precision
        return self._payment(self.u if wider else 0.0, self.eta)

    @property
    def coarse(self) -> bool:
        """Whether bars can be so wide that a derivative at the value no longer bounds them."""
        return self.storage.precision < 24 or bool(self.model)

    def sum_error(self, terms: int) -> float:
        """Relative error, against the sum of magnitudes, of a sum of `terms` products.

        `terms` u; where that no longer rejects the next lower precision and the data are
        independent, 6 sqrt(terms) u, which a random walk exceeds once in 10^8 times.
        """
        u = self.sums.u + DOUBLE_ROUNDOFF
        steps: float = terms
        if self.independent and terms * u >= 2.0 ** -NEXT_LOWER[self.storage.name]:
            steps = min(steps, 6 * sqrt(terms))
        # two factors that are rounded first: two more roundings a product
        rounded = 2 * self.products.u if self.products else 0.0
        error = steps * u
        return rounded + (error / (1 - error) if error < 0.5 else 2 * error)

    def of_precision(self, bits: int) -> Arithmetic:
        """The same with at most so many bits everywhere, and the range of before."""

        def coarser(fmt: Format) -> Format:
            return replace(fmt, precision=min(fmt.precision, bits))

        return replace(
            self,
            storage=coarser(self.storage),
            primitive=coarser(self.primitive),
            sums=coarser(self.sums),
            products=None if self.products is None else coarser(self.products),
        )

    @cached_property
    def tied(self) -> Arithmetic:
        """The same with `ties`."""
        return replace(self, ties=True)

    def _payment(self, error: float, eta: float, flushed: float = 0.0) -> Payment:
        # far below float64's own largest number, where squares overflow; half is room for rounding
        ample = min(self.primitive.largest * error / (1 + error) / 2, 1e150) ** 2
        return Payment(np.asarray(error), np.asarray(eta), ample, np.asarray(flushed))

    def _flushed(self, fmt: Format) -> float:
        return fmt.smallest_normal if self.flushes else 0.0


def classes(
    dtype: str,
    *,
    flushes: bool = False,
    tf32: bool = False,
    ulps: Mapping[str, float] | None = None,
    rounded_attributes: bool = False,
) -> tuple[Arithmetic, ...]:
    """The arithmetic classes of `dtype`, tightest first; one for float32 and float64."""
    return _classes(dtype, flushes, tf32, tuple(sorted((ulps or {}).items())), rounded_attributes)


@cache
def _classes(
    dtype: str,
    flushes: bool,
    tf32: bool,
    ulps: tuple[tuple[str, float], ...],
    rounded_attributes: bool,
) -> tuple[Arithmetic, ...]:
    storage, single = format_of(dtype), format_of("float32")
    if storage.precision >= single.precision:
        formats = [("", storage, storage)]
    else:
        formats = [("F", single, single), ("P", storage, single), ("S", storage, storage)]
    factors = format_of("tf32") if tf32 and dtype == "float32" else None
    return tuple(
        Arithmetic(
            name, storage, primitive, sums, factors, flushes,
            ulps=dict(ulps), rounded_attributes=rounded_attributes,
        )
        for name, primitive, sums in formats
    )  # fmt: skip


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
