"""Elementary functions on every kind of number, and how accurate they are.

Every result lies within its bar. Besides, where ONNX's formula and the stable form agree that the
value is NaN or infinite, so is the result; and where an argument of 0, 1 or infinity makes it
exactly zero, that zero has its sign. A backend that flushes to zero may read a subnormal argument
as zero.

The errors in ULPs of the exact values are measured whatever the judgement. One ULP is the spacing
of the format's numbers at the exact value (Muller et al., Handbook of Floating-Point Arithmetic,
2018, section 2.3.2), at least the smallest subnormal number.

Where the function has a stable form of its own, its bar is a second one, which grades: `stable`
within both, `naive` within that of ONNX's formula only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.accuracy import Accuracy, Grade, ulps
from d5test.backends.base import Unsupported
from d5test.case import Array, Case, Operator, Tensor, dtype_of, is_float
from d5test.checks.inquiry import Inquiry
from d5test.checks.special import NAN_IS_OPEN
from d5test.numerics.arithmetic import DOUBLE_ROUNDOFF, Arithmetic, Format
from d5test.numerics.bounds import Bound, Bounds, double, forward_bounds, library_bound
from d5test.numerics.elementary import LIBRARY, ROUNDED
from d5test.numerics.judgement import Judgement, ratios
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable
from d5test.reference.stable import CORRECTLY_ROUNDED, FORMS, condition, stable
from d5test.values import signalling

ZERO_IS_OPEN = {
    "Celu": "ONNX's text gives max(0, -0) + min(0, 0), its function body the argument",
    "Gelu": "x times a probability: ONNX's formula gives -0 for -0, but no standard has it",
    "Relu": "max(0, -0): IEEE 754-2008, 5.3.1, lets maxNum return either, ONNX names no maximum",
    "Sign": "ONNX's text gives 0 for either zero, and does not say which",
    "Selu": "ONNX's text counts zero among the negative numbers, its function body does not",
}
"""Operators for which nobody says which zero an exact zero is.

For the others IEEE 754-2019 does, 5.4.1 (square root), 5.5.1 (abs, negate), 6.3 (products,
quotients and sums) and 9.2.1 (tanh), or C23, F.10.3 (exp, log) and F.10.5 (erf); Elu and LeakyRelu
are x for x >= 0 in ONNX's text, and -0 >= 0."""

FEW = (1, 8, 64)
"""So many elements are tried alone where one of thousands is wrong."""
OF_THE_WHOLE = ("input", "largest", "case")
"""Details that are of all elements."""

EXACT_AT = (0.0, 1.0, np.inf)
"""Magnitudes of arguments at which a zero is exact, not an underflow."""

DOUBLE = 53
"""Precision at which the reference is no finer than what it measures."""

Where = NDArray[np.bool_]


@dataclass(frozen=True)
class Measured(Judgement):
    """A judgement, right or wrong, with the errors in ULPs, and the grade if there is one."""

    accuracy: Accuracy = field(default_factory=Accuracy)
    grade: Grade | None = None


@dataclass(frozen=True)
class Values:
    """Inputs and results of a function, element by element, in float64, all of one shape.

    formula  what ONNX's formula gives in float64
    exact    what the stable form gives
    signals  whether an argument is a signalling NaN
    """

    op: Operator
    xs: tuple[Array, ...]
    got: Array
    formula: Array
    exact: Array
    signals: Where

    @cached_property
    def agreed(self) -> Where:
        """Where both forms have the same value, of the same sign, NaN included."""
        signs = np.signbit(self.formula) == np.signbit(self.exact)
        return np.asarray(_same(self.formula, self.exact) & (signs | np.isnan(self.exact)))

    @property
    def open(self) -> Where:
        """Where nothing is demanded: of an infinity ONNX's formula is NaN, the stable form not."""
        beyond = np.any([np.isinf(x) for x in self.xs], axis=0)
        return np.asarray(beyond & np.isnan(self.formula))

    def read_as_zero(self, arithmetic: Arithmetic) -> Where:
        """Where the result is that of zero, and may be: an argument is flushed."""
        zero = np.zeros(self.got.shape, bool)
        if not arithmetic.flushes:
            return zero
        small = [subnormal(x, arithmetic.storage) for x in self.xs]
        for flushed in product((False, True), repeat=len(self.xs)):
            where = [s & f for s, f in zip(small, flushed, strict=True)]
            if np.any(where):
                read = (
                    np.where(w, np.copysign(0.0, x), x)
                    for w, x in zip(where, self.xs, strict=True)
                )
                zero |= np.any(where, axis=0) & _same(self.got, stable(self.op, *read))
        return zero

    def nan(self, arithmetic: Arithmetic) -> Where:
        """Where a NaN is demanded."""
        if self.op.name in NAN_IS_OPEN:
            return np.zeros(self.got.shape, bool)
        return np.asarray(self.agreed & np.isnan(self.exact) & ~self.read_as_zero(arithmetic))

    def infinite(self, arithmetic: Arithmetic) -> Where:
        """Where an infinity is demanded, besides where the bars demand one.

        Of a finite argument the reference's own overflow proves nothing for float64.
        """
        sure = arithmetic.storage.precision < DOUBLE
        for x in self.xs:
            sure |= np.isinf(x) | (x == 0)
        return np.asarray(self.agreed & np.isinf(self.exact) & sure)

    @property
    def zero(self) -> Where:
        """Where the sign of a zero is demanded."""
        if self.op.name in ZERO_IS_OPEN:
            return np.zeros(self.got.shape, bool)
        sure = np.any([np.isin(np.abs(x), EXACT_AT) for x in self.xs], axis=0)
        return np.asarray(self.agreed & (self.exact == 0) & sure)

    def demanded(self, bound: Bound | None, arithmetic: Arithmetic) -> Bound:
        """The bars: 0 where an infinity or NaN is demanded, none where an argument is flushed.

        Nor is there one for a NaN of a signalling NaN, as NaN^0 may be (IEEE 754-2019, 9.2.1).
        """
        assert bound is not None
        bar = np.where(self.infinite(arithmetic) | self.nan(arithmetic), 0.0, bound.bar)
        free = self.read_as_zero(arithmetic) | (self.signals & np.isnan(self.got))
        return replace(bound, bar=np.where(free, np.inf, bar))

    def at(self, place: tuple[int, ...]) -> tuple[float, ...]:
        """The inputs there."""
        return tuple(float(x[place]) for x in self.xs)


def _same(one: Array, other: Array) -> Where:
    """Equal, or both NaN."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def accuracy(client: Any, case: Case) -> Judgement:
    """Every element is right, specials and signs of zero too; a fault has its accuracy as well."""
    try:
        return _judged(client, case)
    except Fault as fault:
        raise on_few(client, case, fault, _judged) from None


def on_few(
    client: Any, case: Case, fault: Fault, judged: Callable[[Any, Case], Judgement]
) -> Fault:
    """The same fault with the wrong element alone, if it shows there: a call that can be pasted.

    Vector code may differ from what is done with a few elements, so several are tried as well.
    """
    whole = fault.judgement
    arrays = np.broadcast_arrays(*map(np.asarray, case.arrays()))
    if whole is None or arrays[0].size <= FEW[-1]:
        return fault
    at = [float(x[whole.position]) for x in arrays]
    for count in FEW:
        inputs = tuple(Tensor((count,), case.dtype, data=(x,) * count) for x in at)
        try:
            judged(client, Case(case.op, inputs))
        except (Unsupported, Inapplicable):
            break
        except Fault as few:
            if few.kind == fault.kind and few.judgement is not None:
                few.case = case
                if isinstance(whole, Measured) and isinstance(few.judgement, Measured):
                    few.judgement = replace(
                        few.judgement, accuracy=whole.accuracy, grade=whole.grade
                    )
                few.details |= {k: v for k, v in fault.details.items() if k in OF_THE_WHOLE}
                return few
    return fault


def _judged(client: Any, case: Case) -> Judgement:
    inquiry = Inquiry("accuracy", client, case)
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed)
    arithmetic = inquiry.classes()[0]
    tight = inquiry.forward_bounds(arithmetic)
    inquiry.shaped(tight, result.outputs, (feed,))
    with np.errstate(all="ignore"):
        xs = tuple(np.broadcast_arrays(*double(inquiry.arrays)))
        got = result.outputs[0].astype(np.float64)
    exact = stable(case.op, *xs)
    signals = np.zeros(got.shape, bool)
    for x in inquiry.arrays:
        if x is not None and is_float(x.dtype.name):
            signals |= signalling(x)
    values = Values(case.op, xs, got, np.asarray(inquiry.outputs[0]), exact, signals)
    certain = np.where(values.open, np.nan, exact)
    measured = errors_in_ulps(xs, got, certain, own_error(case.op, xs), arithmetic)

    def bounds(a: Arithmetic) -> Bounds:
        (bound,) = tight if a == arithmetic else inquiry.forward_bounds(a)
        return (values.demanded(bound, a),)

    try:
        judgement, _ = inquiry.held(
            bounds, result.outputs, (feed,), kind="value", what="the result is wrong"
        )
        demanded = values.demanded(tight[0], arithmetic)
        swallowed = values.nan(arithmetic) & ~np.isnan(got)
        if swallowed.any():
            first = _first(values, swallowed)
            what = f"the result is {first.got!r} where NaN is due"
            if np.isnan(values.at(first.position)).any():
                what = "a NaN is swallowed"
            raise inquiry.fault("special", what, (feed,), "special", first, ((demanded,),))
        turned = values.zero & (got == 0) & (np.signbit(got) != np.signbit(exact))
        if turned.any():
            zeros = replace(demanded, bar=np.where(values.zero, 0.0, np.inf))
            what = "a zero has the wrong sign"
            first = _first(values, turned)
            raise inquiry.fault("sign of zero", what, (feed,), "signed", first, ((zeros,),))
    except Fault as fault:
        if fault.judgement is not None:
            at = values.at(fault.judgement.position)
            grade = Grade(wrong=True) if type(case.op) in FORMS else None
            fault.judgement = Measured(**vars(fault.judgement), accuracy=measured, grade=grade)
            fault.details["input"] = ", ".join(map(repr, at))
            if measured.largest:
                where = ", ".join(map(repr, measured.at))
                fault.details["largest"] = f"{ulps(measured.largest)} ULPs, at {where}"
        raise
    share = float(np.isfinite(demanded.bar).mean())
    judgement = replace(judgement, share=share, void=share == 0)
    return Measured(**vars(judgement), accuracy=measured, grade=_grade(inquiry, values))


def _first(values: Values, wrong: Where) -> Judgement:
    """The judgement of the first element that is wrong."""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    got, want = float(values.got[at]), float(values.exact[at])
    return Judgement(ratio=np.inf, position=at, got=got, want=want)


def _grade(inquiry: Inquiry, values: Values) -> Grade | None:
    """By the bar of the stable form, in the loosest class that the row allows.

    A function as good as a library's is stable whatever its form.
    """
    op, allowed = values.op, inquiry.allowed
    form = FORMS.get(type(op))
    if form is None or not values.got.size:
        return None
    (bound,) = forward_bounds(lambda *xs: (form(op, *xs),), inquiry.arrays, allowed)
    assert bound is not None
    bars = np.maximum(bound.bar, library_bound(bound.value, allowed).bar)
    beyond = np.any([np.isinf(x) for x in values.xs], axis=0)  # a formula may have no limit there
    bound = replace(bound, bar=np.where(beyond, np.inf, bars))
    ratio = ratios(values.demanded(bound, allowed), values.got)
    worst = tuple(map(int, np.unravel_index(ratio.argmax(), ratio.shape)))
    return Grade(float(ratio[worst]), values.at(worst))


def own_error(op: Operator, xs: tuple[Array, ...]) -> Array:
    """By how many ULPs of float64 the stable form may be off itself."""
    granted = ROUNDED if type(op) in CORRECTLY_ROUNDED else LIBRARY
    with np.errstate(all="ignore"):
        return granted * condition(op, *xs)


def spacing(values: Array, fmt: Format) -> NDArray[np.float64]:
    """One ULP of `fmt` at each of `values`, which are finite."""
    _, exponents = np.frexp(np.abs(values))
    ulp: NDArray[np.float64] = np.ldexp(1.0, exponents - fmt.precision)
    return np.where(values == 0, fmt.smallest_subnormal, np.maximum(ulp, fmt.smallest_subnormal))


def errors_in_ulps(
    xs: Sequence[Array], got: Array, exact: Array, off: Array, arithmetic: Arithmetic
) -> Accuracy:
    """The errors of results `got` on inputs `xs`, where `exact` are the values in float64.

    What those may be `off` themselves, in ULPs of float64, is taken from each error: nothing to
    speak of below float64, and there what is left is certain. Counted are the inputs that have a
    value; where the backend flushes, those that are normal numbers and whose values are, by more
    than a rounding. An infinity counts as the largest number: it is the judgement that demands or
    forbids it.
    """
    fmt = arithmetic.storage
    certain = fmt.precision < DOUBLE or bool(np.all(off <= ROUNDED))
    with np.errstate(all="ignore"):
        result = got.astype(np.float64)
        nearest = exact.astype(dtype_of(fmt.name)).astype(np.float64)
        counted = ~np.isnan(exact)
        if arithmetic.flushes:
            for values in (*xs, exact):
                counted &= ~subnormal(values, fmt)
            counted &= np.abs(nearest) != fmt.smallest_normal
        y = np.clip(exact, -fmt.largest, fmt.largest)
        doubt = off * 2 * DOUBLE_ROUNDOFF * np.abs(y)
        error = np.abs(np.clip(result, -fmt.largest, fmt.largest) - y) - doubt
    result, exact, nearest, y, error = (a[counted] for a in (result, exact, nearest, y, error))
    if not error.size:
        return Accuracy(rounded=0 if certain else None)
    with np.errstate(over="ignore"):
        ulps = np.where(np.isnan(result), np.inf, np.maximum(error, 0.0) / spacing(y, fmt))
        total = float(ulps[np.isfinite(ulps)].sum())
    i = int(ulps.argmax())
    return Accuracy(
        int(ulps.size),
        float(ulps[i]), tuple(float(x[counted][i]) for x in xs), float(result[i]), float(exact[i]),
        total,
        int(np.count_nonzero(result == nearest)) if certain else None,
    )  # fmt: skip


def subnormal(values: Array, fmt: Format) -> NDArray[np.bool_]:
    """Which values are below the smallest normal number, but zero."""
    sizes = np.abs(values)
    return np.asarray((sizes > 0) & (sizes < fmt.smallest_normal))
