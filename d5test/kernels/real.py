"""Problems of real networks, as far as each takes a moment: what they enter is compared.

What decides which kernel runs is kept: channels, heads, groups, kernels, strides. The number of
samples is one, a few, and the problem's own.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from d5test.case import Case, Operator
from d5test.problems.deepbench import deepbench

AFFORDABLE = 10**8
"""Multiplications of a problem."""
ELEMENTS = 2**23
"""Elements of its inputs."""
SAMPLES = (1, 8)


def real_problems(operator: type[Operator]) -> Iterator[Case]:
    """The problems of an operator that are known and affordable, in float32; most have none."""
    for problem in deepbench():
        if type(problem.case.op) is operator:
            cases = [problem.case, *(with_samples(problem.case, count) for count in SAMPLES)]
            yield from filter(affordable, dict.fromkeys(cases))


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


def affordable(case: Case) -> bool:
    """Whether it takes a moment on one core."""
    elements = sum(prod(shape or ()) for shape in case.shapes)
    return elements <= ELEMENTS and (case.op.multiplications(*case.shapes) or 0) <= AFFORDABLE
