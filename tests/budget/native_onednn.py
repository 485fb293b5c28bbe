"""oneDNN's convolution, called as the backend calls it, against PyTorch's: DeepBench's smallest
problems in float32, one thread each. Nothing where oneDNN is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F

from d5test.backends import registry
from d5test.problems.deepbench import deepbench
from tests.budget.measure import AGAIN, OURS, THEIRS, Line, clock, in_turn, ratio

BOUND = 1.2
COUNT = 10


def lines() -> Iterator[Line]:
    """One for each problem."""
    if "onednn" not in registry.installed():
        return
    from d5test.backends.onednn import OneDnn

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    convolutions = (p for p in deepbench() if p.case.op.name == "Conv")
    for problem in islice(convolutions, COUNT):
        op = problem.case.op
        arrays = [random.standard_normal(t.shape).astype("f") for t in problem.case.inputs]
        x, w = map(torch.from_numpy, arrays)
        plan = OneDnn.rows["Conv"].plan(op, arrays)

        def ours() -> None:
            plan(*arrays)  # noqa: B023 - called before the next problem

        def theirs() -> None:
            F.conv2d(x, w, stride=op.strides, padding=op.pads[:2])  # noqa: B023

        arms = {OURS: clock(ours), THEIRS: clock(theirs), AGAIN: clock(theirs)}
        with torch.no_grad():
            times = in_turn(arms, rounds=101, seconds=1.5)
        yield ratio(f"onednn, {problem.name} / torch", times, BOUND)
