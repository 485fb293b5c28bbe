"""Data as Python source: readable where it is small, else compressed bytes in base 64."""

from __future__ import annotations

import base64
import re
import textwrap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from d5test.backends.base import bits
from d5test.case import Array
from d5test.numerics.bounds import Bound

READABLE = 64
"""Elements up to which an array is written as numbers."""


def tensor(array: Array | None) -> str:
    """An input: `array("float32", [...])`, as `calls.array` reads it."""
    if array is None:
        return "None"
    name = array.dtype.name
    if array.size <= READABLE:
        return f'array("{name}", {numbers(array)})'
    return f'({packed(bits(np.ascontiguousarray(array))[0])}, "{name}")'


def want(bound: Bound | None, stashed: bool = False) -> str:
    """What is expected, in float64: `Want("float32", value, bar)`."""
    if bound is None:
        return "None"
    bar = np.broadcast_to(np.asarray(bound.bar, np.float64), bound.value.shape)
    return f'Want("{dtypes(bound, stashed)}", {_plain(bound.value)}, {_plain(bar)})'


def dtypes(bound: Bound, stashed: bool) -> str:
    """The dtypes that a result may have: `float16 or float32` if it is stashed."""
    if bound.storage is not None:
        return f"{bound.storage.name} or float32" if stashed else str(bound.storage.name)
    kind = bound.value.dtype.name.rstrip("0123456789")
    widths = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
    return " or ".join(f"{kind}{width}" for width in widths.get(kind, ("",)))


def infinite(text: str) -> list[str]:
    """The import that numbers in a text need."""
    names = [name for name in ("inf", "nan") if re.search(rf"(?<![\w\"']){name}\b", text)]
    return [f"from math import {', '.join(names)}"] if names else []


def _plain(array: Array) -> str:
    array = np.asarray(array)
    if array.size > 1 and (array == array.flat[0]).all():
        return f"np.full({array.shape}, {number(array.flat[0])})"
    if array.size > READABLE:
        return packed(np.ascontiguousarray(array))
    return numbers(array) if array.size else f"np.zeros({array.shape})"


def numbers(array: Array) -> str:
    """Nested lists of numbers that are read back to the same bits."""
    if not array.size:
        return f"np.zeros({array.shape})"
    if array.ndim == 0:
        return number(array[()])
    return f"[{', '.join(numbers(np.asarray(part)) for part in array)}]"


def number(value: Any) -> str:
    """The shortest text that is read back to the same number, through float64."""
    kind = np.asarray(value).dtype
    if kind.kind in "iub":
        return repr(value.item())
    wide = float(value)
    short = "nan" if np.isnan(wide) else str(value)
    if kind.kind == "f" and np.isfinite(wide) and kind.type(float(short)) != value:
        return repr(wide)
    return repr(wide) if kind.name == "bfloat16" else short


def packed(array: Array) -> str:
    """`unpacked(dtype, shape, text)`, as `calls.unpacked` reads it."""
    text = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()
    lines = "\n".join(f'    "{line}"' for line in textwrap.wrap(text, 92))
    return f'unpacked("{array.dtype.str}", {array.shape}, (\n{lines}\n))'


def attributes(values: Mapping[str, Any]) -> str:
    """Keyword arguments."""
    return ", ".join(
        f"{name}=np.array({numbers(value)}, {value.dtype.name!r})"
        if isinstance(value, np.ndarray)
        else f"{name}={value!r}"
        for name, value in values.items()
    )
