"""What a reproducer embeds: the operator, the inputs of each call, and what is expected.

As Python source: readable where it is small, else compressed bytes in base 64.
"""

import base64
import re
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from d5test.backends.base import bits
from d5test.case import Array
from d5test.client.messages import plain
from d5test.numerics.bounds import Bound
from d5test.outcome.fault import Fault

READABLE = 64
"""Elements up to which an array is written as numbers."""
DIED = ("crash", "hang")
"""Kinds of faults that end the process."""


def claim(fault: Fault) -> str:
    """What the file is to try: a key of `compose.CLAIMS`."""
    if fault.kind in (*DIED, "exception"):
        return "raises" if fault.evidence.claim == "raises" else "returns"
    return "compiles" if fault.kind == "not compiled" else fault.evidence.claim


def operator(fault: Fault, *, whole: bool) -> str:
    """`OP`, as a row sees it; `whole`: with all attributes in a dictionary besides."""
    name, values = plain(fault.case.op)
    attributes = _keywords(values)
    if not whole:
        return f"OP = Op(name={name!r}{', ' if attributes else ''}{attributes})"
    return (
        f"ATTRIBUTES = dict({attributes})\n"
        f"OP = Op(name={name!r}, attributes=ATTRIBUTES, **ATTRIBUTES)"
    )


def calls(fault: Fault) -> str:
    """`CALLS`, and as far as the claim needs them `EXPECTED` and `BAR`."""
    evidence = fault.evidence
    feeds, times = evidence.feeds, ""
    if len(feeds) > 1 and all(feed is feeds[0] for feed in feeds):
        feeds, times = feeds[:1], f" * {len(feeds)}"
    lines = [_nested("CALLS = [", (_call(feed, evidence.wanted) for feed in feeds)) + times]
    if evidence.claim in ("within", "special", "signed", "computed", "rounded"):
        every = expected(fault)
        if times and all(bounds is evidence.expected[0] for bounds in evidence.expected):
            every = every[:1]
        else:
            times = ""
        wants = [[_want(*bound) for bound in bounds] for bounds in every]
        lines.append(_nested("EXPECTED = [", (_nested("[", entries) for entries in wants)) + times)
    if evidence.claim == "slope" and fault.judgement is not None:
        lines.append(f"BAR = {fault.judgement.bar!r}")
    return "\n".join(lines)


def _call(feed: Any, wanted: tuple[int, ...]) -> str:
    parts = [_nested("[", map(tensor, feed.inputs))]
    if feed.grads is not None:
        parts += [_nested("grads=[", map(tensor, feed.grads)), f"wanted={list(wanted)}"]
    if feed.layouts is not None and set(feed.layouts) != {"contiguous"}:
        parts.append(f"memory={list(feed.layouts)!r}")
    if feed.grad_layout != "contiguous":
        parts.append(f"grad_memory={feed.grad_layout!r}")
    if any(earlier is not None for earlier in feed.same_as or ()):
        parts.append(f"same_as={list(feed.same_as)!r}")
    if feed.op is not None:
        name, values = plain(feed.op)
        attributes = _keywords(values)
        parts.append(f"op=Op(name={name!r}, attributes=dict({attributes}), {attributes})")
    if feed.tangents is not None:
        parts.append(_nested("tangents=[", map(tensor, feed.tangents)))
    if feed.again:
        parts.append("again=True")
    return _nested("Call(", parts)


def _nested(opening: str, entries: Iterable[str]) -> str:
    """Entries behind a bracket, each on lines of its own, and the bracket that closes it."""
    inside = "".join(textwrap.indent(f"{entry},\n", "    ") for entry in entries)
    return opening + (f"\n{inside}" if inside else "") + {"[": "]", "(": ")"}[opening[-1]]


def expected(fault: Fault) -> list[list[tuple[Bound | None, bool]]]:
    """What is expected of each result, and whether a stashed one may stay in float32."""
    evidence = fault.evidence
    gradients = evidence.feeds[-1].grads is not None and evidence.claim != "computed"
    stashed = () if gradients else fault.case.op.stashed_outputs
    return [
        [(bound, k in stashed) for k, bound in enumerate(bounds)] for bounds in evidence.expected
    ]


def _want(bound: Bound | None, stashed: bool) -> str:
    """What is expected, in float64: `Want("float32", value, bar)`."""
    if bound is None:
        return "None"
    bar = np.broadcast_to(np.asarray(bound.bar, np.float64), bound.value.shape)
    return f'Want("{dtypes(bound, stashed)}", {_plain(bound.value)}, {_plain(bar)})'


def dtypes(bound: Bound, stashed: bool) -> str:
    """The dtypes that a result may have: `float16 or float32` if it is stashed."""
    if bound.storage is not None:
        return f"{bound.storage.name} or float32" if stashed else str(bound.storage.name)
    if bound.exactly or bound.value.dtype.isbuiltin == 2:
        return str(bound.value.dtype.name)
    kind = bound.value.dtype.name.rstrip("0123456789")
    widths = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
    return " or ".join(f"{kind}{width}" for width in widths.get(kind, ("",)))


def tensor(array: Array | None) -> str:
    """An input: `array("float32", [...])`, as `copied.array` reads it."""
    if array is None:
        return "None"
    name = array.dtype.name
    if array.size <= READABLE:
        return f'array("{name}", {numbers(array)})'
    return f'({_packed(bits(np.ascontiguousarray(array))[0])}, "{name}")'


def _plain(array: Array) -> str:
    if array.size > 1 and (array == array.flat[0]).all():
        return f"np.full({array.shape}, {_number(array.flat[0])})"
    if array.size > READABLE:
        return _packed(np.ascontiguousarray(array))
    return numbers(array)


def numbers(array: Array) -> str:
    """Nested lists of numbers that are read back to the same bits."""
    if not array.size:
        return f"np.zeros({array.shape})"
    if array.ndim == 0:
        return _number(array[()])
    return f"[{', '.join(numbers(np.asarray(part)) for part in array)}]"


def _number(value: Any) -> str:
    """The shortest text that is read back to the same number, through float64."""
    kind = np.asarray(value).dtype
    if kind.kind in "iub":
        return repr(value.item())
    wide = float(value)
    short = "nan" if np.isnan(wide) else str(value)
    if kind.kind == "f" and np.isfinite(wide) and kind.type(float(short)) != value:
        return repr(wide)
    return repr(wide) if kind.isbuiltin == 2 else short


def _packed(array: Array) -> str:
    """`unpacked(dtype, shape, text)`, as `copied.unpacked` reads it."""
    return f'unpacked("{array.dtype.str}", {array.shape}, {compressed(array.tobytes())})'


def compressed(content: bytes) -> str:
    """Bytes as compressed text in base 64, over several lines."""
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    lines = "\n".join(f'    "{line}"' for line in textwrap.wrap(text, 80))
    return f"(\n{lines}\n)"


def infinite(text: str) -> list[str]:
    """The import that numbers in a text need."""
    names = [name for name in ("inf", "nan") if re.search(rf"(?<![\w\"']){name}\b", text)]
    return [f"from math import {', '.join(names)}"] if names else []


def _keywords(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}=np.array({numbers(value)}, {value.dtype.name!r})"
        if isinstance(value, np.ndarray)
        else f"{name}={value!r}"
        for name, value in values.items()
    )
