"""A reference convolution in float64, forward + backward, against torch in float64, one thread."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits

from d5test.reference.operators import OPERATORS
from tests.budget.measure import AGAIN, OURS, THEIRS, Line, clock, in_turn, ratio

BOUND = 2.0
SIZES = (
    ((2, 3, 8, 7), (4, 3, 3, 3), 1),
    ((4, 8, 20, 19), (16, 8, 3, 3), 1),
    ((8, 16, 32, 31), (32, 16, 3, 3), 1),
    ((8, 16, 32, 31), (32, 16, 3, 3), 2),
    ((4, 64, 28, 27), (64, 64, 3, 3), 1),
    ((4, 64, 28, 27), (128, 64, 1, 1), 1),
    ((2, 3, 64, 63), (32, 3, 7, 7), 2),
)
"""Of x and w, and the stride."""


def lines() -> Iterator[Line]:
    """One for each size."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    with threadpool_limits(1):
        for x_shape, w_shape, stride in SIZES:
            pad = w_shape[2] // 2
            op = OPERATORS["Conv"](pads=(pad,) * 4, strides=(stride,) * 2)
            x, w, b = map(random.standard_normal, (x_shape, w_shape, w_shape[:1]))
            (y,) = op(x, w, b)
            dy = random.standard_normal(y.shape)
            inputs = [torch.tensor(a, requires_grad=True) for a in (x, w, b)]
            upstream = torch.tensor(dy)

            def ours() -> None:
                op.vjp((dy,), (x, w, b), op(x, w, b))  # noqa: B023 - called before the next size

            def theirs() -> None:
                out = F.conv2d(*inputs, stride=stride, padding=pad)  # noqa: B023
                torch.autograd.grad(out, inputs, upstream)  # noqa: B023

            arms = {OURS: clock(ours), THEIRS: clock(theirs), AGAIN: clock(theirs)}
            shapes = f"{'x'.join(map(str, x_shape))} by {'x'.join(map(str, w_shape))}"
            yield ratio(
                f"reference Conv forward + backward, {shapes}, stride {stride} / torch",
                in_turn(arms, rounds=101, seconds=2.0),
                BOUND,
            )
