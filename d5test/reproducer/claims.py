"""What a reproducer claims of the answers to its calls, and its verdict. NumPy, Python 3.9 alone.

Copied into reproducers as far as they use it, and called by nobody else. A claim returns in words
what is wrong: none if nothing is.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.reproducer.calls import Answer

LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
}
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
PATIENCE = 5
"""Seconds that a call is repeated for before it is said to give the same each time."""


class Want:
    """What is expected of a result: `value`, give or take `bar`."""

    def __init__(self, dtype: str, value: Any, bar: Any) -> None:
        self.dtype, self.value, self.bar = dtype, np.asarray(value), np.asarray(bar)


def within(found: list[Answer], expected: Any, outputs: bool = False) -> str:
    """What lies outside its bar: gradients if a call has them, else (or if told to) outputs."""
    all_wrong = []
    for k, (each, wants) in enumerate(zip(found, expected, strict=False)):
        judged = each.outputs if outputs or not each.gradients else each.gradients
        what = "output" if judged is each.outputs else "gradient"
        if wants and len(judged) != len(wants):
            return f"call {k}: {len(judged)} {what}s, want {len(wants)}"
        for j, (got, want) in enumerate(zip(judged, wants, strict=False)):
            wrong = "" if want is None else difference(got[0], got[1], want)
            if wrong:
                all_wrong.append(f"call {k}, {what} {j}: {wrong}")
    return "; ".join(all_wrong)


def difference(got: Any, dtype: str, want: Want) -> str:
    """What is wrong with one array; empty if it is right. An infinite bar judges nothing."""
    if got.shape != want.value.shape:
        return f"shape {got.shape}, want {want.value.shape}"
    if dtype not in want.dtype.split(" or "):
        return f"dtype {dtype}, want {want.dtype}"
    value, bar, got = want.value.astype(float), want.bar, widened(got, dtype)
    largest = LARGEST.get(dtype, np.inf)
    with np.errstate(all="ignore"):
        infinite = np.isinf(got) & (np.sign(got) == np.sign(value))
        wrong = ~(np.abs(got - value) <= bar) & (got != value)
        wrong &= ~(infinite & (np.abs(value) + bar > largest))
        beyond = largest * (1 + ROUNDOFF.get(dtype, 0.0))
        wrong |= (np.abs(value) - bar > beyond) & ~infinite
        wrong &= ~np.isnan(value)
        wrong |= np.isnan(value) & (bar == 0) & ~np.isnan(got)
    wrong &= np.isfinite(bar)
    if not wrong.any():
        return ""
    with np.errstate(all="ignore"):
        excess = np.where(np.isfinite(got), np.abs(got - value) / bar, np.inf)
    at = np.unravel_index(np.where(wrong, excess, -1.0).argmax(), wrong.shape)
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong, most of all {[*map(int, at)]}: "
        f"{float(got[at])!r}, want {float(value[at])!r} give or take {float(bar[at]):.3g}"
    )


def shaped(found: list[Answer], calls: Any) -> str:
    """Which gradient has another shape than its input."""
    for k, (each, call) in enumerate(zip(found, calls, strict=False)):
        for i, (dx, _) in zip(call.wanted, each.gradients, strict=False):
            if dx.shape != call.inputs[i][0].shape:
                return f"call {k}, gradient of input {i}: shape {dx.shape}"
    return ""


def signed(found: list[Answer], expected: Any) -> str:
    """Which zero has the wrong sign, where a bar of 0 says that it is exact."""
    for k, (each, wants) in enumerate(zip(found, expected, strict=False)):
        for j, ((values, dtype), want) in enumerate(zip(each.outputs, wants, strict=False)):
            got = widened(values, dtype)
            wrong = (got == 0) & (want.value == 0) & (want.bar == 0)
            wrong &= np.signbit(got) != np.signbit(want.value)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                return (
                    f"call {k}, output {j}: {float(got[at])!r} at {list(at)}, want the other zero"
                )
    return ""


def widened(values: Any, dtype: str) -> Any:
    """In float64; from bfloat16's bits, too."""
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def unlike(one: Any, other: Any) -> bool:
    """Whether two arrays differ in any bit."""
    if one is None or other is None:
        return one is not other
    same = one[1] == other[1] and one[0].shape == other[0].shape
    return not same or one[0].tobytes() != other[0].tobytes()


def repeated(run: Callable[[], list[Answer]]) -> str:
    """What the same call gives otherwise than the first time, asked until it does."""
    until = time.monotonic() + PATIENCE
    first, *others = run()
    calls = 0
    while True:
        for each in others:
            calls += 1
            for what in ("outputs", "gradients"):
                one, other = getattr(first, what), getattr(each, what)
                alike = zip(one, other, strict=False)
                if len(one) != len(other) or any(unlike(a, b) for a, b in alike):
                    return f"call {calls}, with the same inputs, gives other {what}"
        if time.monotonic() > until:
            return ""
        others = run()


def untouched(found: list[Answer], backend: Any, calls: Any) -> str:
    """Which input or upstream gradient is overwritten."""
    for k, (each, call) in enumerate(zip(found, calls, strict=False)):
        for what, tensors, given in (
            ("input", each.tensors, call.inputs),
            ("upstream gradient", each.upstream, call.grads),
        ):
            for i, (tensor, before) in enumerate(zip(tensors, given, strict=False)):
                if before is not None and unlike(backend.get(tensor), before):
                    return f"call {k} overwrites its {what} {i}"
    return ""


def kept(found: list[Answer], backend: Any) -> str:
    """Which output a later call changes."""
    for k, each in enumerate(found):
        for j, (tensor, before) in enumerate(zip(each.kept, each.outputs, strict=False)):
            if unlike(backend.get(tensor), before):
                return f"output {j} of call {k} is changed by a later call"
    return ""


def sloping(found: list[Answer], calls: Any, bar: float) -> str:
    """Whether the gradient of the first call disagrees with the rise between the other two."""
    at, ahead, behind = found
    slope = sum(
        float(np.sum(g[0] * (calls[1].inputs[i][0] - calls[2].inputs[i][0])))
        for i, g in zip(calls[0].wanted, at.gradients, strict=False)
    )
    rise = sum(
        float(np.sum(dy[0] * a[0])) - float(np.sum(dy[0] * b[0]))
        for dy, a, b in zip(calls[0].grads, ahead.outputs, behind.outputs, strict=False)
        if dy is not None
    )
    if abs(slope - rise) <= bar:
        return ""
    return f"the gradient promises a rise of {slope!r}, the forward has {rise!r} +- {bar:.3g}"


def raised(run: Callable[[], Any]) -> str:
    """The exception that these calls raise; empty if they return."""
    try:
        run()
    except Unsupported:
        raise
    except Exception as error:  # noqa: BLE001 (each framework has its own)
        traceback.print_exc()
        return f"raises {type(error).__name__}: {error}"
    return ""


def accepted(run: Callable[[], Any]) -> str:
    """Whether these calls return, where they should raise."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 (each framework has its own)
        print(f"refused: {type(error).__name__}: {error}")
        return ""
    return "accepted"


def uncompiled(backend: Any, run: Callable[[], Any]) -> str:
    """Whether these calls compile nothing."""
    run()
    return "" if backend.compilations() else "nothing was compiled"


def conclude(wrong: str, who: str) -> None:
    """Say it in one line, and in the exit status."""
    print(f"still there: {wrong} ({who})" if wrong else f"gone ({who})", flush=True)
    sys.exit(1 if wrong else 0)
