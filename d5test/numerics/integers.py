"""What an operator makes of integers: exact, where it fits into their dtype.

What is moved or compared is so as it is. What is computed is computed in Python's integers, which
have no end: where a result is beyond the dtype, ONNX does not say what it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Array, Operator
from d5test.numerics.bounds import Bound, Bounds

DType = np.dtype[Any]
Convert = Callable[[Array], Array]
"""The same numbers, as far as another dtype has them, in their own."""


def integer_bounds(op: Operator, arrays: Sequence[Any], typed: int) -> Bounds:
    """The outputs of `op` on `arrays`, to be met exactly, the first `typed` ones in their dtypes.

    The others are indices and counts, whose width frameworks choose.
    """
    return tuple(
        Bound(np.asarray(y), np.zeros(np.shape(y)), None, exactly=k < typed)
        for k, y in enumerate(op(*arrays))
    )


def computed_bounds(
    op: Operator, arrays: Sequence[Array | None], places: Sequence[int], dtype: DType
) -> Bounds:
    """As `integer_bounds`, in `dtype`, where results fit into it and into that of the data.

    places  the positions of the data; the other inputs are arguments
    """
    endless = (
        x if x is None or i not in places else x.astype(object) for i, x in enumerate(arrays)
    )
    data = next(x for x in (arrays[i] for i in places) if x is not None)
    return tuple(_fitting(y, (data.dtype, dtype)) for y in op(*endless))


def _fitting(y: Any, dtypes: tuple[DType, DType]) -> Bound:
    y, ends = np.asarray(y, object), [*map(np.iinfo, dtypes)]
    fits = np.all([(y >= each.min) & (y <= each.max) for each in ends], axis=0).astype(bool)
    value = np.where(fits, y, 0).astype(dtypes[1])
    return Bound(value, np.where(fits, 0.0, np.inf), None, exactly=True)


def in_narrower(bounds: Bounds, cut: Convert) -> Bounds:
    """Bounds of integers that were computed in a narrower dtype, and converted back."""
    return tuple(
        b if b is None or b.value.dtype.kind not in "iu" else replace(b, value=cut(b.value))
        for b in bounds
    )


def narrower_integers(dtype: DType) -> Iterator[tuple[str, Convert, Convert]]:
    """Of a dtype of integers the narrower ones: the name, what becomes of inputs, and of results.

    Inputs are cut, or become the nearest there is; results are cut.
    """
    for bits in (32, 16, 8) if dtype.kind in "iu" else ():
        if bits < 8 * dtype.itemsize:
            ends = np.iinfo(f"{'u' * (dtype.kind == 'u')}int{bits}")

            def cut(x: Array, narrower: DType = ends.dtype) -> Array:
                return x.astype(narrower).astype(x.dtype)

            yield ends.dtype.name, cut, cut
            yield ends.dtype.name, partial(np.clip, a_min=ends.min, a_max=ends.max), cut
