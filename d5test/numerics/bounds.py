"""What the reference expects: values with bars, as stored in the dtype under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.case import Operator
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic, Format
from d5test.numerics.bars import Bar
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


def forward_bounds(op: Operator, arrays: Sequence[Any], arithmetic: Arithmetic) -> Bounds:
    """Outputs of `op` on `arrays` (in the dtype under test; their values are exact)."""
    with np.errstate(all="ignore"):
        return tuple(_stored(y, arithmetic) for y in op(*_exact(arrays, arithmetic)))


def gradient_bounds(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any], arithmetic: Arithmetic
) -> Bounds:
    """Gradients of the inputs of `op` under the upstream gradients `grads`.

    At kinks and ties every subgradient between the one-sided ones is inside the bar. The
    framework's backward sees its outputs as stored, hence with their bars.
    """
    inputs = _exact(arrays, arithmetic)
    with np.errstate(all="ignore"):
        outputs = tuple(_as_stored(y, arithmetic) for y in op(*inputs))
        tied = arithmetic.with_ties()
        gradients = op.vjp(_exact(grads, tied), _retied(inputs, tied), _retied(outputs, tied))
        return tuple(None if g is None else _stored(g, arithmetic) for g in gradients)


def lower_precision(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None, dtype: str
) -> tuple[Array | None, ...]:
    """The outputs (or with `grads` the gradients) as computed in the next lower precision."""
    precision = NEXT_LOWER[dtype]

    def lowered(x: Array) -> Any:
        return Rounded(round_to(x, precision), precision=precision)

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
    """The floating-point arrays in float64, the others as they are."""
    return _map_floats(arrays, lambda x: x)


def _map_floats(arrays: Sequence[Any], function: Callable[[Array], Any]) -> tuple[Any, ...]:
    """Apply `function` to floating-point arrays (as float64), once for arrays given twice."""
    made: dict[int, Any] = {}
    result = []
    for array in arrays:
        # ml_dtypes' types are of kind V
        if array is None or np.asarray(array).dtype.kind not in "fV":
            result.append(array)
            continue
        if id(array) not in made:
            made[id(array)] = function(np.asarray(array).astype(np.float64))
        result.append(made[id(array)])
    return tuple(result)


def _exact(arrays: Sequence[Any], arithmetic: Arithmetic) -> tuple[Any, ...]:
    return _map_floats(arrays, lambda x: Bar(x, arithmetic=arithmetic))


def _retied(arrays: Sequence[Any], arithmetic: Arithmetic) -> tuple[Any, ...]:
    """The same arrays in another arithmetic."""
    return tuple(
        Bar(x.value, x.companion, arithmetic=arithmetic) if isinstance(x, Bar) else x
        for x in arrays
    )


def _as_stored(y: Any, arithmetic: Arithmetic) -> Any:
    """An output as the backward pass finds it again: rounded to storage."""
    if not isinstance(y, Bar) or y.companion is None or y.value.dtype.kind != "f":
        return y
    return y.like(y.value, _stored_bar(y.value, y.companion, arithmetic))


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
        bar = np.abs(value - round_to(value, arithmetic.storage.precision))
        if arithmetic.flushes:
            bar = bar + np.where(np.abs(value) < arithmetic.output_eta, np.abs(value), 0.0)
    return Bound(value, np.broadcast_to(bar, value.shape), arithmetic.storage)


def _stored_bar(value: Array, bar: Array, arithmetic: Arithmetic) -> Array:
    """One ULP more. What the value's formula left exact (a bar of zero) stays exact."""
    u = arithmetic.storage.u
    ulp = 2 * u * (np.abs(value) + bar) + arithmetic.output_eta
    certain = bar == 0
    if arithmetic.flushes or not certain.any():
        return bar + ulp
    exact = certain & (value == round_to(value, arithmetic.storage.precision))
    return np.where(exact, 0.0, bar + ulp)
