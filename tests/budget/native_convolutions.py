"""The convolutions of the backends `native` and `onednn`, called as those call them, against
PyTorch's: DeepBench's smallest problems in float32, one thread each. A backend that is not
installed is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F

from d5test.backends import registry
from d5test.backends.native import Native
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
    """One for each problem."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    convolutions = (p for p in deepbench() if p.case.op.name == "Conv")
    for problem in islice(convolutions, COUNT):
        op = problem.case.op
        arrays = [random.standard_normal(t.shape).astype("f") for t in problem.case.inputs]
        x, w = map(torch.from_numpy, arrays)
        plan = backend.rows["Conv"].plan(op, arrays)

        def ours() -> None:
            plan(*arrays)  # noqa: B023 - called before the next problem

        def theirs() -> None:
            F.conv2d(x, w, stride=op.strides, padding=op.pads[:2])  # noqa: B023

        arms = {OURS: clock(ours), THEIRS: clock(theirs), AGAIN: clock(theirs)}
        with torch.no_grad():
            times = in_turn(arms, rounds=101, seconds=1.5)
        yield ratio(f"{name}, {problem.name} / torch", times, bound)
