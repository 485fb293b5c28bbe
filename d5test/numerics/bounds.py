"""What the reference expects: values with bars, as stored in the dtype under test.

ONNX stores a real attribute as a float32, while a function that is not ONNX's has the number of
the paper: `LayerNormalization().epsilon` is the float32 next to 1e-5, `F.layer_norm`'s is 1e-5.
Both are right, so the attribute is a number with an error: half a ULP of float32. It has none
where it is a float32 and no shorter decimal means the same one: 1.0, 0.75, 0.0625.
"""

import dis
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.case import Operator
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic, Format, format_of
from d5test.numerics.bars import Bar
from d5test.numerics.perturbed import round_to, rounded
from d5test.numerics.tracked import Tracked
from d5test.values import finfo

Array = NDArray[Any]


@dataclass(frozen=True)
class Bound:
    """An expected array: a backend is right where |got - value| <= bar.

    An infinite or NaN bar is not judged. `storage` is `None` for integers and booleans. With
    `exactly` a NaN is demanded where one is expected, a zero has its sign, and the dtype is that
    of `storage` or `value`.
    """

    value: Array
    bar: Array
    storage: Format | None
    exactly: bool = False

    @cached_property
    def exact(self) -> Array:
        """The value in float64, whatever it is counted in."""
        return self.value.astype(np.float64)

    @cached_property
    def judged(self) -> Array:
        """Which elements can be judged at all."""
        return np.isfinite(self.bar) & (self.exactly | ~np.isnan(self.exact))

    @cached_property
    def all_judged(self) -> bool:
        """Whether every element can be."""
        return bool(self.judged.all())

    def may_be(self, array: Array) -> bool:
        """Whether a result may have an array's shape and dtype."""
        dtype = self.value.dtype.name if self.storage is None else self.storage.name
        same = not self.exactly or array.dtype.name == dtype
        return same and array.shape == self.value.shape

    @cached_property
    def reaches_infinity(self) -> bool:
        """Whether an element, or one that is not judged, may be infinite in storage."""
        if self.storage is None or not self.value.size:
            return False
        return not np.max(np.abs(self.exact) + self.bar) <= self.storage.largest


Bounds = tuple[Bound | None, ...]
ONE = np.ones(())


def forward_bounds(
    op: Callable[..., tuple[Any, ...]], arrays: Sequence[Any], arithmetic: Arithmetic
) -> Bounds:
    """Outputs of `op` on `arrays` (in the dtype under test; their values are exact)."""
    keep_freed_memory()
    if isinstance(op, Operator) and (own := op.bounds(arrays, None, arithmetic)) is not None:
        return tuple(own)
    if isinstance(op, Operator) and op.typed:
        return typed_bounds(op, arrays, arithmetic)

    def run(op: Callable[..., tuple[Any, ...]]) -> tuple[Bound, ...]:
        inputs = counted(op, exact_bars(arrays, arithmetic), Bar(ONE, arithmetic=arithmetic))
        bounds = [as_compared(y, arithmetic) for y in op(*inputs)]
        others = op.other_forward(*inputs) if isinstance(op, Operator) else None
        if others is not None:
            also = (as_compared(y, arithmetic) for y in others)
            bounds = [wider for wider in map(either, bounds, also) if wider is not None]
        return besides(op, arrays, bounds, arithmetic)

    with np.errstate(all="ignore"):
        if arithmetic.rounded_attributes and isinstance(op, Operator):
            return _reaching(op, run)
        return run(op)


def besides(
    op: Any, arrays: Sequence[Any], bounds: Sequence[Bound], arithmetic: Arithmetic
) -> tuple[Bound, ...]:
    """The bounds of outputs, whose elements may be off by more than their own terms explain."""
    known = op.normwise(*double(arrays)) if isinstance(op, Operator) else None
    if known is None:
        return tuple(bounds)
    return tuple(
        replace(b, bar=b.bar + arithmetic.u * error)
        for b, error in zip(bounds, known, strict=True)
    )


def library_bound(value: Array, arithmetic: Arithmetic) -> Bound:
    """A function's `value` with what the table grants those of a library, all in one."""
    with np.errstate(all="ignore"):
        y = Bar(value, arithmetic=arithmetic)
        return as_compared(y.rounded(value, None, arithmetic.granted[np.exp]), arithmetic)


def gradient_bounds(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any], arithmetic: Arithmetic
) -> Bounds:
    """Gradients of the inputs of `op` under the upstream gradients `grads`.

    At kinks and ties every subgradient between the one-sided ones is inside the bar. The
    framework's backward sees its outputs as stored, hence with their bars. Where another formula
    of the gradient is in use, the bars hold both.
    """
    keep_freed_memory()
    if (own := op.bounds(arrays, grads, arithmetic)) is not None:
        return tuple(own)
    if op.typed:
        return typed_gradients(op, arrays, grads, arithmetic)
    inputs = exact_bars(arrays, arithmetic)
    tied = arithmetic.tied
    common = replace(tied, ulps={})  # what a row grants its own formula is not granted here

    def run(op: Operator) -> Bounds:
        if reads_outputs(type(op).backward):
            outputs = tuple(as_stored(y, tied) for y in op(*inputs))
        else:
            outputs = op(*(x.value if isinstance(x, Bar) else x for x in inputs))
        gradients = op.vjp(exact_bars(grads, tied), exact_bars(arrays, tied), outputs)
        bounds = tuple(None if g is None else as_compared(g, arithmetic) for g in gradients)
        others = op.other_backward(exact_bars(grads, common), exact_bars(arrays, common))
        if others is None:
            return bounds
        return tuple(map(either, bounds, (as_compared(g, arithmetic) for g in others)))

    with np.errstate(all="ignore"):
        return _reaching(op, run) if arithmetic.rounded_attributes else run(op)


def typed_bounds(op: Operator, arrays: Sequence[Any], arithmetic: Arithmetic) -> Bounds:
    """Outputs of an operator that is `typed`, each in its own dtype: they have to be met exactly.

    Where results are flushed, so may inputs be: what is read as zero gives the result of zero.
    """
    with np.errstate(all="ignore"):
        (y,), undefined = op(*arrays), op.undefined(*arrays)
        bound = _typed(y, arithmetic, exactly=True)
        bar = np.where(undefined, np.inf, bound.bar)
        if arithmetic.flushes and is_real(arrays[0]):
            x, *others = arrays
            flushed = np.absolute(x.astype(np.float64)) < finfo(x.dtype).smallest_normal
            (zero,) = op(np.where(flushed, np.zeros_like(x), x), *others)
            bar = bar + np.absolute(bound.exact - zero.astype(np.float64))
    return (replace(bound, bar=bar),)


def typed_gradients(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any], arithmetic: Arithmetic
) -> Bounds:
    """Gradients of an operator that is `typed`, each in its input's dtype."""
    with np.errstate(all="ignore"):
        gradients = op.vjp(tuple(grads), tuple(arrays))
    return tuple(None if dx is None else _typed(dx, arithmetic) for dx in gradients)


def _typed(y: Array, arithmetic: Arithmetic, *, exactly: bool = False) -> Bound:
    """An array in its own dtype."""
    y = np.asarray(y)
    if not is_real(y):
        return Bound(y, np.zeros(y.shape), None, exactly)
    storage, value = format_of(y.dtype.name), y.astype(np.float64)
    size = np.absolute(value)
    lost = arithmetic.flushes & (size < storage.smallest_normal)
    return Bound(value, np.where(lost, size, 0.0), storage, exactly)


def is_real(array: Array) -> bool:
    """Whether an array is of a floating-point dtype, of any width."""
    return "float" in array.dtype.name


def either(bound: Bound | None, other: Bound) -> Bound | None:
    """The value of a bound, its bar so wide that it holds what another formula may give."""
    if bound is None:
        return None
    wider = np.maximum(bound.bar, np.absolute(other.value - bound.value) + other.bar)
    return replace(bound, bar=np.where(np.isfinite(wider), wider, bound.bar))


@cache
def keep_freed_memory() -> None:
    """Keep freed memory for the next array; once a process.

    glibc hands large arrays back to the system when they are freed, and gets every page of the
    next one anew: at 60,000 elements that costs a bar, which needs several arrays at once, four
    times its arithmetic. The size from which it does so follows the largest array freed so far, up
    to 32 MiB: almost so large a one is allocated and freed here, untouched.
    """
    np.empty(32 * 2**20 - 2**16, np.uint8)


def half_ulp(attribute: float) -> float:
    """By how much a number that ONNX stores as the same float32 may differ from `attribute`."""
    stored = np.float32(attribute)
    exact = float(stored) == attribute == float(str(stored))
    return 0.0 if exact else float(np.spacing(np.abs(stored))) / 2


def corners(op: Operator) -> Iterator[Operator]:
    """The operator with each open attribute at either end of its interval, in all combinations.

    An output or a gradient that is monotone in each attribute, as all are over so short an
    interval, is furthest from that of `op` at one of them. None where nothing is open.
    """
    values = {f.name: getattr(op, f.name) for f in fields(op)}
    ends = {
        name: (value - half_ulp(value), value + half_ulp(value))
        for name, value in values.items()
        if isinstance(value, float) and half_ulp(value)
    }
    for corner in product(*ends.values()) if ends else ():
        yield op.with_(**dict(zip(ends, corner, strict=True)))


def _reaching(op: Operator, run: Callable[[Operator], Bounds]) -> Bounds:
    """The bars of `run(op)` widened until they hold those at the corners, with their rounding.

    What is exact for `op`, as beyond a kink, need not be so there.
    """
    bounds = run(op)
    at_corners = [tuple(map(_holding, bounds, run(corner))) for corner in corners(op)]
    return tuple(map(_widest, bounds, *at_corners))


def _holding(bound: Bound | None, other: Bound | None) -> Bound | None:
    """The value of a bound; its bar also holds `other`, and the bar of whatever lies between.

    A gradient may jump at a kink between both, by a product with an attribute in between: that
    differs from the corner's by a ULP of float32 at most.
    """
    if bound is None or other is None or bound.storage is None:
        return bound
    moved = np.where(bound.value == other.value, 0.0, np.absolute(other.value - bound.value))
    return replace(bound, bar=moved * (1 + 2.0**-23) + np.maximum(bound.bar, other.bar))


def _widest(bound: Bound | None, *others: Bound | None) -> Bound | None:
    """A bound with the widest bars of those of its value."""
    if bound is None:
        return None
    return replace(bound, bar=np.max([bound.bar, *(b.bar for b in others if b)], axis=0))


@cache
def reads_outputs(backward: Any) -> bool:
    """Whether the code of an operator's `backward` names the outputs. If not, they need no bars.

    What is no plain `def backward(self, grads, inputs, outputs)` may read them.
    """
    code = getattr(backward, "__code__", None)
    if code is None or code.co_argcount != 4:
        return True
    name = code.co_varnames[3]
    return any(instruction.argval == name for instruction in dis.get_instructions(code))


def lower_precision(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None, dtype: str
) -> tuple[Array | None, ...]:
    """The outputs (or with `grads` the gradients) as computed in the next lower precision.

    `dtype` is the one under test, or `tf32` for float32 whose multiplications may run in that.
    Outputs that no precision changes are displaced: of an exact operator, and of integers.
    """
    bits = NEXT_LOWER[dtype]
    if (own := op.lowered(arrays, grads, bits)) is not None:
        return tuple(own)
    results = (
        _coarser(op, arrays, grads)
        if op.typed
        else lifted_results(op, arrays, grads, partial(rounded, precision=bits))
    )
    exact = op.exact or not any(x is not None and is_real(x) for x in arrays)
    return tuple(map(displaced, results)) if exact and grads is None else results


def displaced(y: Array | None) -> Array | None:
    """Each element in the place of the next one; a single one, which has none, larger by 1."""
    if y is None or y.size > 1:
        return y if y is None else np.roll(y, 1)
    return y.astype(np.float64) + 1


def _coarser(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None
) -> tuple[Array | None, ...]:
    """Results of an operator that is `typed`, with one bit less: inputs, and results.

    Of inputs subnormal numbers are read as zeros.
    """

    def bits(x: Array) -> int:
        return format_of(x.dtype.name).precision if is_real(x) else 4 * x.dtype.itemsize

    def shorter(y: Array | None, most: int) -> Array | None:
        if y is None or not is_real(y):
            return y
        rounded: Array = round_to(y.astype(np.float64), min(bits(y), most) - 1)
        return rounded

    x, *others = arrays
    with np.errstate(all="ignore"):
        if grads is not None:
            least = min(bits(a) for a in (x, *grads) if a is not None)
            return tuple(shorter(dx, least) for dx in op.vjp(tuple(grads), tuple(arrays)))
        read = round_to(x.astype(np.float64), bits(x) - 1)
        if is_real(x):
            read = np.where(np.absolute(read) < finfo(x.dtype).smallest_normal, 0, read)
        read = read.astype(x.dtype)
        return tuple(shorter(y, 53) for y in op(read, *others))


def lifted_results(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None, lift: Callable[[Array], Any]
) -> tuple[Array | None, ...]:
    """The outputs (or with `grads` the gradients) of what `lift` makes of arrays in float64."""

    def lifted(x: Array) -> Any:
        return lift(x.astype(np.float64))

    with np.errstate(all="ignore"):
        inputs = counted(op, map_floats(arrays, lifted), lift(ONE))
        results = op(*inputs)
        if grads is not None:
            results = op.vjp(map_floats(grads, lifted), inputs, results)
    return tuple(
        None if r is None else r.value if isinstance(r, Tracked) else np.asarray(r)
        for r in results
    )


def double(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The floating-point arrays in float64, as new arrays; the others as they are."""
    return map_floats(arrays, partial(_wide, copy=True))


def _wide(x: Array, *, copy: bool = False) -> Array:
    """In float64, with quiet NaNs: of one that signals, NaN^0 is 1 on some processors alone."""
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64, copy=copy)
    nan = np.isnan(wide)
    return np.where(nan, np.nan, wide) if nan.any() else wide


def exact_bars(arrays: Sequence[Any], arithmetic: Arithmetic) -> tuple[Any, ...]:
    """The floating-point arrays in float64, with bars; their values are exact."""
    arithmetic = replace(arithmetic, infinite=True) if _any_infinite(arrays) else arithmetic
    return map_floats(arrays, lambda x: Bar(_wide(x), arithmetic=arithmetic))


def counted(op: Any, arrays: Sequence[Any], one: Any) -> tuple[Any, ...]:
    """The arrays; whole numbers with which `op` computes what is rounded are tracked as `one`."""
    places = getattr(op, "counted", ()) if isinstance(one, Tracked) else ()
    return tuple(one.like(x) if i in places else x for i, x in enumerate(arrays))


def _any_infinite(arrays: Sequence[Any]) -> bool:
    return any(
        array is not None and array.dtype.kind in "fV" and bool(np.isinf(array).any())
        for array in arrays
    )


def map_floats(arrays: Sequence[Any], function: Callable[[Array], Any]) -> tuple[Any, ...]:
    """Apply `function` to floating-point arrays, once for arrays given twice."""
    results: dict[int, Any] = {}
    for array in arrays:
        if id(array) not in results:
            # ml_dtypes' types are of kind V
            is_float = array is not None and np.asarray(array).dtype.kind in "fV"
            results[id(array)] = function(np.asarray(array)) if is_float else array
    return tuple(results[id(array)] for array in arrays)


class Stored(Bar):
    """An output as the backward pass finds it again: rounded to storage, once its bar is read."""

    def __init__(self, computed: Bar, arithmetic: Arithmetic) -> None:
        self.value = computed.value
        self.chain = None
        self.arithmetic = arithmetic
        self.beyond = None
        self._computed = computed

    @cached_property
    def companion(self) -> Array:  # type: ignore[override]
        y = self._computed
        return _stored_bar(y.value, y.full_companion(), y.arithmetic)


def as_stored(y: Any, arithmetic: Arithmetic) -> Any:
    """An output for the backward pass, which goes on in `arithmetic`."""
    if not isinstance(y, Bar):
        return y
    if y.companion is None or y.value.dtype.kind != "f":
        return Bar(y.value, y.companion, arithmetic=arithmetic)
    return Stored(y, arithmetic)


def as_compared(y: Any, arithmetic: Arithmetic) -> Bound:
    """An output as it is compared. Exact values must be met exactly, as far as storage can."""
    if not isinstance(y, Bar):
        value = np.asarray(y)
        return Bound(value, np.zeros(value.shape), None)
    value = y.value
    if value.dtype.kind != "f":
        return Bound(value, np.asarray(y.full_companion()), None)
    known = y.companion if y.beyond is None else y.beyond
    if known is None:
        bar = _storage_error(value, arithmetic)
    else:
        bar = _stored_bar(value, known, arithmetic)
    if bar.shape != value.shape:
        bar = np.broadcast_to(bar, value.shape)
    return Bound(value, bar, arithmetic.storage)


def _storage_error(value: Array, arithmetic: Arithmetic) -> Array:
    """How far exact values are from numbers of storage. An infinity is one of them."""
    rounded = round_to(value, arithmetic.storage.precision)
    if rounded is value and np.vdot(value, value) < np.inf:
        bar = np.zeros(())
    else:
        bar = np.where(np.isinf(value), 0.0, np.absolute(value - rounded))
    if arithmetic.flushes:
        size = np.absolute(value)
        bar = bar + np.where(size < arithmetic.output.flushed, size, 0.0)
    return bar


def _stored_bar(value: Array, bar: Array, arithmetic: Arithmetic) -> Array:
    """One ULP more. What the value's formula left exact (a bar of zero) stays exact."""
    ulp = arithmetic.output
    size = np.absolute(value) + bar
    widened = size * ulp.error + ulp.eta
    widened += bar
    if arithmetic.flushes:
        widened += np.minimum(size, ulp.flushed)
    if bar.all():
        return widened
    exact = (bar == 0) & (value == round_to(value, arithmetic.storage.precision))
    if arithmetic.flushes:
        exact &= (np.absolute(value) >= ulp.flushed) | (value == 0)
    return np.where(exact, 0.0, widened)
