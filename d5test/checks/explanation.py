"""Why a result is wrong: the coarser arithmetic, or the narrower format, that explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from d5test.case import Arrays
from d5test.numerics.arithmetic import NARROWER, Arithmetic
from d5test.numerics.bounds import Bounds, double, is_real, map_floats
from d5test.numerics.explanation import (
    explaining_precision,
    is_usual,
    may_cancel,
    no_chance,
    reordered,
    rounded_to,
)
from d5test.numerics.integers import in_narrower, narrower_integers
from d5test.numerics.judgement import Judgement, judge, pairs, rejects
from d5test.numerics.perturbed import round_to

if TYPE_CHECKING:
    from d5test.checks.inquiry import Inquiry


class Wrong(NamedTuple):
    """Results, and the bounds that they broke.

    bounds    what is expected of them, in a class of arithmetic
    loosest   the last class by which they were tried
    expected  the bounds in the nearest one
    feed      the call that returned them
    """

    bounds: Callable[[Arithmetic], Bounds]
    loosest: Arithmetic
    expected: Bounds
    results: Sequence[Any]
    feed: Any


def explained(
    inquiry: Inquiry, judgement: Judgement, wrong: Wrong, *, honest: bool
) -> tuple[Judgement, str]:
    """The judgement of a wrong result with what explains it, and what the headline says of that.

    honest  whether a looser class than the allowed one holds it
    """
    expected, results = wrong.expected, wrong.results
    if not honest:
        judgement = _characterised(inquiry, judgement, wrong)
    whole = isinstance(judgement.want, int)
    if whole and (narrower := _converted_to(inquiry, wrong)):
        return replace(judgement, read_as=narrower), f": integers are converted to {narrower}"
    if (whole or judgement.explained != 0) and (narrower := rounded_to(expected, results)):
        return replace(judgement, rounded_to=narrower), f": rounded to {narrower}"
    if (
        not (honest or judgement.reordered)
        and isfinite(judgement.got)
        and judgement.got  # a zero or an infinity may have any reason
        and (narrower := _read_as(inquiry, wrong.feed, results, expected))
    ):
        return replace(judgement, read_as=narrower), f": inputs are rounded to {narrower}"
    return judgement, ""


def _characterised(inquiry: Inquiry, judgement: Judgement, wrong: Wrong) -> Judgement:
    storage, feed = inquiry.allowed.storage, wrong.feed
    bits = explaining_precision(wrong.bounds, wrong.loosest, wrong.results, inquiry.arrays)
    normal = abs(judgement.got) >= storage.smallest_normal
    flushing = replace(wrong.loosest, flushes=True)
    flushed = (
        bits == 0
        and (normal or judgement.got == 0)
        and judge(wrong.bounds(flushing), wrong.results).right
    )
    data = (*feed.inputs, *(feed.grads or ()))
    cancelled = (
        bits == 0
        and may_cancel(judgement, 2 * storage.u, data)
        and is_usual(judgement, wrong.expected, wrong.results)
    )
    places = {k: (bound, got) for k, bound, got in pairs(wrong.expected, wrong.results)}
    return replace(
        judgement,
        explained=bits,
        cancelled=cancelled,
        flushed=flushed,
        reordered=not (bits or flushed or cancelled) and reordered(*places[judgement.output]),
    )


def _read_as(inquiry: Inquiry, feed: Any, results: Sequence[Any], right: Bounds) -> str:
    """The narrower format to which inputs were rounded first, if that explains the results.

    The widest one that does. All of them were, or the first two: devices that run float32 in
    TF32 or bfloat16 round the factors of products. Its bars hold the results, which is no
    chance, and reject what is `right`. Empty if there is no such format.
    """
    floats = any(x is not None and is_real(x) for x in feed.inputs)
    if feed.inputs is not inquiry.arrays or feed.tangents is not None or not floats:
        return ""
    exact, grads = double(feed.inputs), feed.grads
    for bits, name in sorted(NARROWER.items(), reverse=True):
        if bits >= inquiry.loosest.storage.precision:
            continue
        to_bits = partial(round_to, precision=bits)
        rounded = map_floats(exact, to_bits)
        for arrays in (rounded, (*rounded[:2], *exact[2:])):
            if grads is None:
                expected = inquiry.forward_bounds(inquiry.loosest, arrays)
            else:
                upstream = map_floats(double(grads), to_bits)
                expected = inquiry.gradient_bounds(inquiry.loosest, upstream, arrays)
            exactly = [None if bound is None else bound.value for bound in right]
            held = fit(expected, results) and judge(expected, results).right
            if held and rejects(expected, exactly) and no_chance(right, expected, results):
                return name
    return ""


def _converted_to(inquiry: Inquiry, wrong: Wrong) -> str:
    """The narrower dtype in which integers were computed, if that explains the results.

    Of an operator that has no other numbers; of others see `d5test.checks.integers`.
    """
    feed = wrong.feed
    if inquiry.case.op.differentiable or feed.inputs is not inquiry.arrays:
        return ""
    every, expect = range(len(feed.inputs)), partial(inquiry.forward_bounds, inquiry.loosest)
    for name, expected in narrowed(feed.inputs, every, expect, wrong.results):
        if no_chance(wrong.expected, expected, wrong.results):
            return name
    return ""


def narrowed(
    arrays: Arrays,
    places: Sequence[int],
    expect: Callable[[Arrays], Bounds],
    results: Sequence[Any],
) -> Iterator[tuple[str, Bounds]]:
    """The narrower dtypes in which integers at `places` give these results, and their bounds."""
    present = ((i, arrays[i]) for i in places)
    dtype = next((x.dtype for _, x in present if x is not None and x.dtype.kind in "iu"), None)
    for name, convert, cut in narrower_integers(dtype) if dtype is not None else ():
        taken = tuple(
            convert(x) if i in places and x is not None and x.dtype == dtype else x
            for i, x in enumerate(arrays)
        )
        expected = in_narrower(expect(taken), cut)
        if fit(expected, results) and judge(expected, results).right:
            yield name, expected


def fit(bounds: Bounds, results: Sequence[Any]) -> bool:
    """Whether the results have the shapes that are expected."""
    return len(bounds) == len(results) and all(
        got.shape == bound.value.shape for _, bound, got in pairs(bounds, results)
    )
