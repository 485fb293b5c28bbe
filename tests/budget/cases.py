"""Deciding one gradient case, every element, against torch's own `gradcheck` on that case.

Ours on float64: the framework's forward and backward, the reference's bars, and the judgement.
`gradcheck` has to run the framework too. In slow mode it is as strong as the bars are; the fast
mode compares one random projection.
"""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.client.client import InProcessClient
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import gradient_bounds
from d5test.numerics.judgement import judge
from d5test.reference.operators import OPERATORS
from tests.budget.measure import AGAIN, OURS, THEIRS, Line, clock, in_turn, ratio

BOUND = 3.0
SHAPES = ((2, 3, 5, 4), (4, 3, 3, 2), (4,))


def lines() -> Iterator[Line]:
    """A small convolution against both modes; what else our check of it costs."""
    torch.set_num_threads(1)
    op = OPERATORS["Conv"](kernel_shape=SHAPES[1][2:])
    case = Case(op, tuple(Tensor(shape, "float64") for shape in SHAPES))
    arrays = case.arrays()
    grads = case.upstream(op(*arrays))
    (arithmetic,) = classes("float64")
    inputs = [torch.tensor(x, requires_grad=True) for x in arrays]
    dy = torch.tensor(grads[0])

    def framework() -> tuple[np.ndarray, ...]:
        return tuple(g.numpy() for g in torch.autograd.grad(F.conv2d(*inputs), inputs, dy))

    results = framework()

    def judged(found: tuple[np.ndarray, ...]) -> None:
        assert judge(gradient_bounds(op, arrays, grads, arithmetic), found).right

    def decided() -> None:
        judged(framework())

    def fast() -> None:
        assert torch.autograd.gradcheck(F.conv2d, inputs, fast_mode=True)

    def slow() -> None:
        assert torch.autograd.gradcheck(F.conv2d, inputs)

    client = InProcessClient("torch")

    def checked() -> None:
        CHECKS["gradient"].run(client, case)

    arms = {
        OURS: clock(decided),
        "judged": clock(lambda: judged(results)),
        "checked": clock(checked),
        THEIRS: clock(fast),
        AGAIN: clock(fast),
    }
    times = in_turn(arms, rounds=201, seconds=10.0)
    what = "deciding the gradients of a small Conv"
    yield ratio(f"{what} / gradcheck(fast_mode=True)", times, BOUND)
    for arm, name in (
        ("judged", f"{what}, without the framework"),
        ("checked", f"{what}, the whole check: data, wire, controls"),
    ):
        yield ratio(f"{name} / gradcheck(fast_mode=True)", {**times, OURS: times[arm]}, None)
    arms = {OURS: clock(decided), THEIRS: clock(slow), AGAIN: clock(slow)}
    yield ratio(f"{what} / gradcheck, slow mode", in_turn(arms, rounds=41, seconds=5.0), None)
