"""What is said of a network that is wrong as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from d5test.networks.whole import Expectation
from d5test.numerics.judgement import Judgement


def misshapen(expected: Expectation, results: Mapping[str, Any]) -> str:
    """Which result is missing or has another shape or kind of dtype; empty if none."""
    for name, bound in zip(expected.names, expected.bounds, strict=True):
        if name not in results:
            return f"{name} is missing"
        got = results[name]
        if bound is None or got is None:
            continue
        if got.shape != bound.value.shape:
            return f"{name} has the shape {got.shape}, not {bound.value.shape}"
        single = bound.storage.name if bound.storage is not None else got.dtype.name
        if got.dtype.name != single or (bound.storage is None and got.dtype.kind not in "iub"):
            return f"{name} is {got.dtype.name}, not {single}"
    return ""


def in_words(expected: Expectation, judgement: Judgement) -> dict[str, str]:
    """Worst element, value, expectation and bar of a judgement."""
    where = f"[{', '.join(map(str, judgement.position))}]"
    shapes = ", ".join(f"{n} {x.dtype.name} {x.shape}" for n, x in expected.inputs.items())
    return {
        "inputs": shapes,
        "worst": f"element {where} of {expected.names[judgement.output]}",
        "got": repr(judgement.got),
        "want": f"{judgement.want!r}, give or take {judgement.bar:.3g}",
        "error": f"{judgement.ratio:.4g} times what the ensemble allows, by element or by norm",
        "judged": f"{judgement.share:.0%} of the elements",
    }
