"""What the reference expects: values with bars, as stored in the dtype under test."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.case import Operator
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic, Format
from d5test.numerics.attributes import corners
from d5test.numerics.bars import Bar
from d5test.numerics.memory import keep_freed_memory
from d5test.numerics.perturbed import Rounded, round_to
from d5test.numerics.tracked import Tracked

Array = NDArray[Any]


@dataclass(frozen=True)
class Bound:
    """An expected array: a backend is right where |got - value| <= bar.

    An infinite or NaN bar is not judged. `storage` is `None` for integers and booleans.
    """

    value: Array
    bar: Array
    storage: Format | None

    @cached_property
    def exact(self) -> Array:
        """The value in float64, whatever it is counted in."""
        return self.value.astype(np.float64)

    @cached_property
    def judged(self) -> Array:
        """Which elements can be judged at all."""
        return np.isfinite(self.bar) & ~np.isnan(self.exact)

    @cached_property
    def all_judged(self) -> bool:
        """Whether every element can be."""
        return bool(self.judged.all())

    @cached_property
    def reaches_infinity(self) -> bool:
        """Whether an element, or one that is not judged, may be infinite in storage."""
        if self.storage is None or not self.value.size:
            return False
        return not np.max(np.abs(self.exact) + self.bar) <= self.storage.largest


Bounds = tuple[Bound | None, ...]


def forward_bounds(
    op: Callable[..., tuple[Any, ...]], arrays: Sequence[Any], arithmetic: Arithmetic
) -> Bounds:
    """Outputs of `op` on `arrays` (in the dtype under test; their values are exact)."""
    keep_freed_memory()
    with np.errstate(all="ignore"):
        bounds = tuple(_stored(y, arithmetic) for y in op(*_exact(arrays, arithmetic)))
        if not (arithmetic.rounded_attributes and isinstance(op, Operator)):
            return bounds
        inputs = double(arrays)
        return _reaching(bounds, (corner(*inputs) for corner in corners(op)))


def library_bound(value: Array, arithmetic: Arithmetic) -> Bound:
    """A function's `value` with what the table grants those of a library, all in one."""
    with np.errstate(all="ignore"):
        y = Bar(value, arithmetic=arithmetic)
        return _stored(y.rounded(value, None, arithmetic.granted[np.exp]), arithmetic)


def gradient_bounds(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any], arithmetic: Arithmetic
) -> Bounds:
    """Gradients of the inputs of `op` under the upstream gradients `grads`.

    At kinks and ties every subgradient between the one-sided ones is inside the bar. The
    framework's backward sees its outputs as stored, hence with their bars.
    """
    keep_freed_memory()
    inputs = _exact(arrays, arithmetic)
    with np.errstate(all="ignore"):
        tied = arithmetic.tied
        if reads_outputs(type(op).backward):
            outputs = tuple(_as_stored(y, tied) for y in op(*inputs))
        else:
            outputs = op(*(x.value if isinstance(x, Bar) else x for x in inputs))
        gradients = op.vjp(_exact(grads, tied), _retied(inputs, tied), outputs)
        bounds = tuple(None if g is None else _stored(g, arithmetic) for g in gradients)
        if not arithmetic.rounded_attributes:
            return bounds
        plain, upstream = double(arrays), double(grads)
        return _reaching(bounds, (corner.vjp(upstream, plain) for corner in corners(op)))


def _reaching(bounds: Bounds, corners: Iterable[Sequence[Any]]) -> Bounds:
    """The bars widened by the distance to the furthest of the results at the corners."""
    apart: list[Any] = [0.0] * len(bounds)
    for results in corners:
        for k, (bound, y) in enumerate(zip(bounds, results, strict=True)):
            if bound is not None and bound.storage is not None:
                moved = np.where(y == bound.value, 0.0, np.absolute(y - bound.value))
                apart[k] = np.maximum(apart[k], moved)
    return tuple(
        None if bound is None else replace(bound, bar=bound.bar + moved)
        for bound, moved in zip(bounds, apart, strict=True)
    )


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
    """
    precision = NEXT_LOWER[dtype]

    def lowered(x: Array) -> Any:
        return Rounded(round_to(x.astype(np.float64), precision), precision=precision)

    with np.errstate(all="ignore"):
        inputs = _map_floats(arrays, lowered)
        results = op(*inputs)
        if grads is not None:
            results = op.vjp(_map_floats(grads, lowered), inputs, results)
    return tuple(
        None if r is None else r.value if isinstance(r, Tracked) else np.asarray(r)
        for r in results
    )


def double(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The floating-point arrays in float64, as new arrays; the others as they are."""
    return _map_floats(arrays, lambda x: x.astype(np.float64))


def _map_floats(arrays: Sequence[Any], function: Callable[[Array], Any]) -> tuple[Any, ...]:
    """Apply `function` to floating-point arrays, once for arrays given twice."""
    made: dict[int, Any] = {}
    result = []
    for array in arrays:
        given = None if array is None else np.asarray(array)
        # ml_dtypes' types are of kind V
        if given is None or given.dtype.kind not in "fV":
            result.append(array)
            continue
        if id(array) not in made:
            made[id(array)] = function(given)
        result.append(made[id(array)])
    return tuple(result)


def _exact(arrays: Sequence[Any], arithmetic: Arithmetic) -> tuple[Any, ...]:
    def exact(x: Array) -> Bar:
        return Bar(x.astype(np.float64, copy=False), arithmetic=arithmetic)

    return _map_floats(arrays, exact)


def _retied(arrays: Sequence[Any], arithmetic: Arithmetic) -> tuple[Any, ...]:
    """The same arrays in another arithmetic."""
    return tuple(
        Bar(x.value, x.companion, arithmetic=arithmetic) if isinstance(x, Bar) else x
        for x in arrays
    )


class Stored(Bar):
    """An output as the backward pass finds it again: rounded to storage, once its bar is read."""

    def __init__(self, computed: Bar, arithmetic: Arithmetic) -> None:
        self.value = computed.value
        self.arithmetic = arithmetic
        self.beyond = None
        self._computed = computed

    @cached_property
    def companion(self) -> Array:  # type: ignore[override]
        y = self._computed
        return _stored_bar(y.value, y.full_companion(), y.arithmetic)


def _as_stored(y: Any, arithmetic: Arithmetic) -> Any:
    """An output for the backward pass, which goes on in `arithmetic`."""
    if not isinstance(y, Bar):
        return y
    if y.companion is None or y.value.dtype.kind != "f":
        return Bar(y.value, y.companion, arithmetic=arithmetic)
    return Stored(y, arithmetic)


def _stored(y: Any, arithmetic: Arithmetic) -> Bound:
    """An output as it is compared. Exact values must be met exactly, as far as storage can."""
    if not isinstance(y, Bar):
        value = np.asarray(y)
        return Bound(value, np.zeros(value.shape), None)
    value = y.value
    if value.dtype.kind != "f":
        return Bound(value, np.asarray(y.full_companion()), None)
    if y.beyond is not None:
        bar = _stored_bar(value, y.beyond, arithmetic)
    elif y.companion is not None:
        bar = _stored_bar(value, y.companion, arithmetic)
    else:
        bar = _storage_error(value, arithmetic)
    if bar.shape != value.shape:
        bar = np.broadcast_to(bar, value.shape)
    return Bound(value, bar, arithmetic.storage)


def _storage_error(value: Array, arithmetic: Arithmetic) -> Array:
    """How far exact values are from numbers of storage; not a number for an infinity."""
    rounded = round_to(value, arithmetic.storage.precision)
    if rounded is value and np.vdot(value, value) < np.inf:
        bar = np.zeros(())
    else:
        bar = np.absolute(value - rounded)
    if arithmetic.flushes:
        size = np.absolute(value)
        bar = bar + np.where(size < arithmetic.output.eta, size, 0.0)
    return bar


def _stored_bar(value: Array, bar: Array, arithmetic: Arithmetic) -> Array:
    """One ULP more. What the value's formula left exact (a bar of zero) stays exact."""
    ulp = arithmetic.output
    widened = (np.absolute(value) + bar) * ulp.error + ulp.eta
    widened += bar
    if arithmetic.flushes or bar.all():
        return widened
    exact = (bar == 0) & (value == round_to(value, arithmetic.storage.precision))
    return np.where(exact, 0.0, widened)
