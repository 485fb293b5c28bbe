"""Gradients of elementary functions on every kind of number.

A slope that is written for ordinary arguments may be no number beyond them: that of an ELU is NaN
where the exponential of the branch not taken overflows. The upstream gradients are normal.

Nothing is demanded of a NaN, where the function itself has no value, or where a subnormal argument
may be read as zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Case
from d5test.checks.accuracy import on_few, subnormal
from d5test.checks.inquiry import Inquiry
from d5test.checks.own_forward import forward_is_wrong
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds, double
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault


def accuracy_gradient(client: Any, case: Case) -> Judgement:
    """Every element of the gradient of a function of one input lies within its bar."""
    with np.errstate(all="ignore"):
        try:
            return _judged(client, case)
        except Fault as fault:
            raise on_few(client, case, fault, _judged) from None


def _judged(client: Any, case: Case) -> Judgement:
    inquiry = Inquiry("accuracy_gradient", client, case)
    feed = inquiry.feed(grads=inquiry.upstream)
    gradient = partial(_where_defined, inquiry, partial(inquiry.gradient_bounds, grads=feed.grads))
    (result,) = inquiry.ask(feed, ahead=[gradient, inquiry.forward_bounds])
    try:
        return inquiry.judged(
            gradient, inquiry.gradients(result), (feed,),
            kind="gradient", what="the gradient is wrong", grads=feed.grads,
        )  # fmt: skip
    except Fault:
        outputs = partial(_where_defined, inquiry, inquiry.forward_bounds)
        try:
            judgement = inquiry.judged(outputs, result.outputs, (feed,))
        except Fault:
            raise forward_is_wrong(inquiry) from None
        if judgement.model:  # it is known to be wrong
            raise forward_is_wrong(inquiry) from None
        raise


def _where_defined(
    inquiry: Inquiry, bounds: Callable[[Arithmetic], Bounds], arithmetic: Arithmetic
) -> Bounds:
    """The bars, where the function has a value of the argument, however it is read."""
    (bound,), (x,) = bounds(arithmetic), double(inquiry.arrays)
    assert bound is not None
    without = np.isnan(x) | np.isnan(inquiry.outputs[0])
    if arithmetic.flushes:
        without |= subnormal(x, arithmetic.storage)
    return (replace(bound, bar=np.where(without, np.inf, bound.bar)),)
