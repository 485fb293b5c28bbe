"""What Resize makes of each axis, in plain numbers, for frameworks that take sizes or factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

Numbers = Sequence[float]


@dataclass(frozen=True)
class Resized:
    """The axes of y.

    sizes       of all axes
    scales      the factors by which coordinates are computed, which sizes need not be the
                quotients of: whole numbers of elements are
    plain       whether these are the quotients
    exact       whether the sizes are rounded down, as those of `scales` are, and change
    pixels      whether samples and channels, the first two axes, stay as they are
    half_pixel  whether the coordinates are those of `half_pixel`
    """

    sizes: tuple[int, ...]
    scales: tuple[float, ...]
    plain: bool
    exact: bool
    pixels: bool
    half_pixel: bool

    @classmethod
    def of(cls, op: Any, shape: Sequence[int], scales: Numbers, sizes: Numbers) -> Resized:
        """Those of a Resize of x of this shape; of `scales` and `sizes` one is empty."""
        axes = [axis % len(shape) for axis in op.axes or range(len(shape))]
        quotients = [m / shape[axis] for m, axis in zip(sizes, axes, strict=False)]
        if op.keep_aspect_ratio_policy != "stretch" and quotients:
            least = op.keep_aspect_ratio_policy == "not_larger"
            quotients = [(min if least else max)(quotients)] * len(axes)
            sizes = [floor(shape[axis] * s + 0.5) for axis, s in zip(axes, quotients, strict=True)]
        new, factors = list(shape), [1.0] * len(shape)
        for i, axis in enumerate(axes):
            factors[axis] = quotients[i] if quotients else scales[i]
            new[axis] = int(sizes[i]) if quotients else floor(shape[axis] * scales[i])
        plain = all(m == n * s for m, n, s in zip(new, shape, factors, strict=True))
        exact = all(
            m == floor(n * s) and (m != n or s == 1)
            for m, n, s in zip(new, shape, factors, strict=True)
        )
        half = {
            "half_pixel": True,
            "half_pixel_symmetric": plain,
            "pytorch_half_pixel": all(new[axis] > 1 for axis in axes),
        }.get(op.coordinate_transformation_mode, False)
        kept = new[:2] == list(shape[:2]) and factors[:2] == [1.0, 1.0]
        return cls(tuple(new), tuple(factors), plain, plain or exact, kept, half)

    def cubic(self, op: Any, a: float, *, outside: bool) -> bool:
        """Whether its cubic weights, or its antialiased ones, are those of a framework."""
        same = op.cubic_coeff_a == a or op.mode != "cubic"
        return same and bool(op.exclude_outside) == outside
