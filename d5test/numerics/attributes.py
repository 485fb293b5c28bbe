"""What ONNX's 32 bits leave open of an operator's attributes.

ONNX stores a real attribute as a float32, while a function at home elsewhere has the number of the
paper: `LayerNormalization().epsilon` is the float32 next to 1e-5, `F.layer_norm`'s is 1e-5. Both
are right, so the attribute is a number with an error: half a ULP of float32. It has none where it
is a float32 and no shorter decimal means the same one: 1.0, 0.75, 0.0625.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import product

import numpy as np

from d5test.case import Operator


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
