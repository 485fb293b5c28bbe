"""The convolutions of the backends `native` and `onednn`, called as those call them, against
PyTorch's: DeepBench's smallest problems in float32, one thread each. A backend that is not
installed is left out.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F

from d5test.client import registry
from d5test.native.backend import Native
from d5test.problems.deepbench import deepbench
from tests.budget.measure import AGAIN, OURS, THEIRS, Line, clock, in_turn, ratio

BOUNDS = {"native": 5.0, "onednn": 1.2}
COUNT = 10


def lines() -> Iterator[Line]:
    """One for each backend and problem."""
    for name, bound in BOUNDS.items():
        if name in registry.installed():
            module, _, kind = registry.target(name).partition(":")
            yield from of(name, getattr(import_module(module), kind), bound)


def of(name: str, backend: type[Native], bound: float) -> Iterator[Line]:
    """Forward, and forward and backward, of each problem."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    made = backend()
    convolutions = (p for p in deepbench() if p.case.op.name == "Conv")
    for problem in islice(convolutions, COUNT):
        op = problem.case.op
        arrays = [random.standard_normal(t.shape).astype("f") for t in problem.case.inputs]
        plan = backend.rows["Conv"].plan(op, arrays)
        (y,) = plan(*arrays)
        dy = random.standard_normal(y.shape).astype("f")
        tensors = [torch.from_numpy(x).requires_grad_() for x in arrays]
        upstream = torch.from_numpy(dy)

        def theirs(*given: torch.Tensor) -> torch.Tensor:
            return F.conv2d(*given, stride=op.strides, padding=op.pads[:2])  # noqa: B023

        def forward() -> None:
            with torch.no_grad():
                theirs(*tensors)  # noqa: B023 - called before the next problem

        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "forward": (partial(plan, *arrays), forward),
            "forward and backward": (
                partial(made.vjp, plan, arrays, [dy], [0, 1]),
                lambda: torch.autograd.grad(theirs(*tensors), tensors, upstream),  # noqa: B023
            ),
        }
        for direction, (one, other) in pairs.items():
            arms = {OURS: clock(one), THEIRS: clock(other), AGAIN: clock(other)}
            times = in_turn(arms, rounds=101, seconds=1.5)
            yield ratio(f"{name}, {problem.name}, {direction} / torch", times, bound)
