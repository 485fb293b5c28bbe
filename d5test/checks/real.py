"""Real problems at their full size: forward and gradient, as many samples as are affordable.

What is wrong is looked for in the problem scaled down first, whose case can be read. What would
not fit into memory, here or beside the framework, is not asked.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from d5test.case import Arrays, Case, Operator, Tensor, dtype_of
from d5test.checks.check import Why, supported
from d5test.checks.inquiry import Inquiry
from d5test.checks.memory import require
from d5test.checks.value import forward, gradient, sampled
from d5test.client.messages import BackendInfo, Result
from d5test.known.failure import in_dtype
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import NO_CALLS
from d5test.outcome.tally import Inapplicable
from d5test.problems.real import real_problems
from d5test.problems.scaling import scaled
from d5test.reference.operators.attention import Attention
from d5test.reference.operators.linear import Gemm, MatMul
from d5test.reference.operators.recurrent import GRU, LSTM, RNN
from d5test.reference.operators.windows import Conv, ConvTranspose

Shape = tuple[int, ...]

AFFORDABLE = 2 * 10**8
"""Scalar multiplications of the reference, forward or backward: a second or so with bars."""
PASSES = 50
"""Multiplications in the time in which NumPy goes over an element as often as a formula does."""
COPIES = 8
"""Of each input and output: here and beside the framework, their gradients, and on the way."""
BARS = 12
"""Arrays in float64 that the reference and its bars make of what is judged."""
PATIENCE = 60.0
"""Seconds for whatever a call does beside its multiplications."""
SLOWEST = 3 * 10**8
"""Multiplications a second that a framework does at least, of a forward and its backward."""
UNIFORM, NORMAL = ("uniform",), ("normal",)
ROOM = 0.5
"""The share of the memory that may be taken."""


def has_problems(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and there are real problems."""
    if not real_problems(operator):
        return Inapplicable("no real problem of this operator is known")
    return supported(operator, about, dtype)


def real_cases(operator: type[Operator], dtype: str) -> tuple[Case, ...]:
    """The real problems of an operator, in this dtype, of values that are made fast."""
    return tuple(in_dtype(_uniform(p.case), dtype) for p in real_problems(operator))


def _uniform(case: Case) -> Case:
    """The case with uniform values in place of normal ones: these take 0.3 us each."""
    inputs = (
        replace(t, values=UNIFORM) if t is not None and t.values == NORMAL else t
        for t in case.inputs
    )
    return replace(case, inputs=tuple(inputs))


def real(client: Any, case: Case) -> Judgement:
    """The outputs and the gradients of a real problem lie within their bars."""
    require_memory(case)
    inquiry = Inquiry("real", client, case)
    seconds = PATIENCE + (case.op.multiplications(*case.shapes) or 0) / SLOWEST
    with client.answering_within(seconds):
        (result,) = inquiry.ask(inquiry.feed())
        outputs = _judged(inquiry, None, result.outputs)
        if not inquiry.has_gradient:
            return outputs
        grads = _upstream(case, result.outputs)
        (result,) = inquiry.ask(inquiry.feed(grads=grads))
    gradients = _judged(inquiry, grads, _at_every_input(inquiry, result))
    worse = max(outputs, gradients, key=lambda j: (j.arithmetic, j.ratio))
    return replace(
        worse,
        void=outputs.void and gradients.void,
        share=min(outputs.share, gradients.share),
        shares={**outputs.shares, **gradients.shares},
    )


def require_memory(case: Case) -> None:
    """Raise `Unsupported` where a problem needs more memory than there is."""
    require(bytes_needed(case), ROOM, case)


def bytes_needed(case: Case) -> int:
    """What a problem takes, here and beside the framework, with its reference."""
    inputs = [prod(shape) for shape in case.shapes if shape is not None]
    elements = sum(inputs) + _outputs(case)
    batch = case.op.batch(*case.shapes)
    first = case.shapes[0]
    samples = first[batch.inputs[0]] if batch and first and batch.inputs[0] is not None else 1
    judged = max(elements // max(samples, 1), min(elements, AFFORDABLE // PASSES))
    return COPIES * elements * dtype_of(case.dtype).itemsize + BARS * judged * 8


def _outputs(case: Case) -> int:
    """The elements of the outputs and of what lies between, or a few more."""
    first, work = case.shapes[0] or (), case.op.multiplications(*case.shapes)
    if work is None:
        return prod(first)
    return work // TERMS[type(case.op)](first, case.shapes[1] or ())


TERMS: dict[type[Operator], Callable[[Shape, Shape], int]] = {
    Conv: lambda x, w: prod(w[1:]),
    ConvTranspose: lambda x, w: w[0],
    Gemm: lambda a, b: min(b),
    MatMul: lambda a, b: b[-2],
    Attention: lambda q, k: 2 * q[-1],
    RNN: lambda x, w: w[2],
    LSTM: lambda x, w: w[2],
    GRU: lambda x, w: w[2],
}
"""Of the shapes of the first two inputs: products that are added for an element, or fewer."""


def _upstream(case: Case, outputs: tuple[Any, ...]) -> Arrays:
    """Uniform upstream gradients for the outputs through which a gradient flows."""
    return tuple(
        None
        if i in case.op.stopped_outputs
        else Tensor(y.shape, case.dtype, UNIFORM).array(case.seed, 1000 + i)
        for i, y in enumerate(outputs)
    )


def _judged(inquiry: Inquiry, grads: Arrays | None, results: Arrays) -> Judgement:
    """The judgement of outputs, or with `grads` of one gradient for each input.

    Raises the fault of the smaller problem where that is wrong too.
    """
    judgement = sampled(inquiry, grads, results, AFFORDABLE, PASSES)
    if judgement.right and judgement.arithmetic <= inquiry.allowed.name:
        return replace(judgement, void=judgement.share == 0)
    small = scaled(inquiry.case)
    if small is not None:
        forward(inquiry.client, small)
        if grads is not None:
            gradient(inquiry.client, small)
    wrong, kind = ("result", "value") if grads is None else ("gradient", "gradient")
    what = f"the {wrong} is wrong, and that of the smaller problem is right"
    if judgement.right:
        kind, what = "arithmetic", f"the {wrong} is outside class {inquiry.allowed.name}"
    raise inquiry.subject.fault(kind, what, NO_CALLS, judgement)


def _at_every_input(inquiry: Inquiry, result: Result) -> Arrays:
    """One gradient for each input, none where it is not judged."""
    wanted = dict(zip(inquiry.wanted, inquiry.gradients(result), strict=True))
    return tuple(wanted.get(i) for i in range(len(inquiry.arrays)))
