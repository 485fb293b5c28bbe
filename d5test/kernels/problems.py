"""Problems of real networks that take a moment each; what they enter is compared with the suites'.

What decides which kernel runs is kept: channels, heads, groups, kernels, strides. The number of
samples is one, a few, and the problem's own; an image is halved until it is affordable.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from d5test.case import Case, Operator
from d5test.problems.real import real_problems

AFFORDABLE = 10**8
"""Multiplications of a problem."""
ELEMENTS = 2**22
"""Elements of its inputs."""
SAMPLES = (1, 8)
LARGE = 32
"""Sides of an image that are halved: the rest is larger than the largest kernels."""


def real_cases(operator: type[Operator]) -> Iterator[Case]:
    """The problems of an operator that are known and affordable, in float32; most have none."""
    for problem in real_problems(operator):
        cases = [problem.case, *(with_samples(problem.case, count) for count in SAMPLES)]
        yield from filter(affordable, dict.fromkeys(map(halved, cases)))


def with_samples(case: Case, count: int) -> Case:
    """The case with so many samples, where they are independent of each other."""
    batch = case.op.batch(*case.shapes)
    if batch is None:
        return case
    inputs = tuple(
        t
        if t is None or axis is None
        else replace(t, shape=(*t.shape[:axis], count, *t.shape[axis + 1 :]))
        for t, axis in zip(case.inputs, batch.inputs, strict=True)
    )
    return replace(case, inputs=inputs)


def halved(case: Case) -> Case:
    """The case with an image that is affordable, or as small as it may be."""
    first = case.inputs[0]
    while not affordable(case) and first is not None and hasattr(case.op, "kernel_shape"):
        space = tuple(side // 2 if side >= LARGE else side for side in first.shape[2:])
        if space == first.shape[2:]:
            break
        first = replace(first, shape=(*first.shape[:2], *space))
        case = replace(case, inputs=(first, *case.inputs[1:]))
    return case


def affordable(case: Case) -> bool:
    """Whether it takes a moment on one core."""
    elements = sum(prod(shape or ()) for shape in case.shapes)
    return elements <= ELEMENTS and (case.op.multiplications(*case.shapes) or 0) <= AFFORDABLE
