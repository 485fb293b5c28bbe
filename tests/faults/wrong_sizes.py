"""Kernels that are wrong at some sizes only: in a tail, a second tile, a special case.

`python -m tests.faults.wrong_sizes` says of how many seeds the default run finds each, or one of
as many cases as the fault asks for.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.backends.numpy import Numpy
from d5test.checks import CHECKS
from d5test.exploration.draws import seed_of_cell
from d5test.exploration.explore import Exploration
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS
from tests.faults.score import Local
from tests.faults.wrong import Arrays, Honest, Wrong

EXAMPLES = 25
"""What the command line draws by default."""
LAST = 16
"""So many elements at the end are wrong, as in what is left over of a vector."""
WRONG = 1.25
"""By this factor: more than any error bar of 16 bits."""

Rule = Callable[[Arrays, Any], bool]
"""Of the inputs and the first output."""


@dataclass(frozen=True)
class Planted:
    """A fault of an operator that shows where `rule` holds, as rarely as `examples` says."""

    name: str
    operator: str
    rule: Rule
    examples: int = EXAMPLES


class AtSizes(Wrong):
    """The last elements are wrong where the fault's rule holds."""

    def __init__(self, fault: Planted) -> None:
        super().__init__()
        self.rule = fault.rule
        self.rows = {**Numpy.rows, fault.operator: self.rows[fault.operator]}

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        y, *others = honest(*inputs)
        if y.size and all(np.ndim(x) for x in inputs[:2]) and self.rule(inputs, y):
            y = y.copy()
            y.flat[-LAST:] *= y.dtype.type(WRONG)
        return (y, *others)


def inner(least: int) -> Rule:
    """Products of at least so many terms that are no whole number of vectors of 16."""
    return lambda x, y: x[0].shape[-1] >= least and x[0].shape[-1] % 16 > 0


PLANTED = (
    *(
        Planted(f"tail of the sum from {n} terms on", "MatMul", inner(n))
        for n in (17, 33, 65, 129)
    ),
    Planted("second tile of 64 rows", "MatMul", lambda x, y: (1, *x[0].shape)[-2] > 64),
    Planted("square matrices", "MatMul", lambda x, y: x[0].shape == x[1].shape and x[0].ndim > 1),
    Planted("a head of values as wide as one of keys", "Attention",
            lambda x, y: x[1].ndim == 4 and x[1].shape[-1] == x[2].shape[-1]),
    Planted("a row beside a square", "Sub",
            lambda x, y: x[0].ndim == 2 and x[0].shape == 2 * x[1].shape),
    Planted("depthwise", "Conv", lambda x, y: x[1].shape[1] == 1 and x[0].shape[1] > 7),
    Planted("one sample", "Conv", lambda x, y: len(x[0]) == 1),
    Planted("a square image", "Conv", lambda x, y: x[0].ndim == 4 and len({*x[0].shape[2:]}) == 1),
    Planted("channels that 16 divides", "Conv", lambda x, y: x[0].shape[1] % 16 == 0),
    Planted("every second pixel of 64 channels", "Conv",
            lambda x, y: {*x[1].shape[2:]} == {1} and x[0].shape[1] >= 64
            and len(y[0, 0].flat) > 1 and y.shape[2] == (x[0].shape[2] + 1) // 2,
            examples=200),  # one problem of 25 has it
    Planted("heads of 64 or 128", "Attention",
            lambda x, y: x[1].ndim == 4 and x[0].shape[-1] == x[2].shape[-1] in (64, 128)),
    Planted("128 terms, 96 columns", "MatMul",
            lambda x, y: x[0].shape[-1] >= 128 and y.shape[-1] >= 96),
    Planted("32768 elements", "Relu", lambda x, y: x[0].size >= 32768),
    Planted("32768 elements", "Add", lambda x, y: max(a.size for a in x[:2]) >= 32768),
    Planted("the vector beyond 64 elements", "Tanh",
            lambda x, y: x[0].size > 64 and x[0].size % 16 > 0),
    Planted("a row of more than 1024", "LayerNormalization", lambda x, y: x[0].shape[-1] > 1024),
    Planted("a row of more than 1024", "Softmax", lambda x, y: x[0].shape[-1] > 1024),
    Planted("more than 1024 terms", "ReduceSum", lambda x, y: x[0].size > 1024 * y.size),
    Planted("16 hidden units", "LSTM", lambda x, y: x[2].shape[-1] >= 16),
    Planted("six axes", "Exp", lambda x, y: x[0].ndim == 6),
)  # fmt: skip


def found(fault: Planted, seed: int) -> str:
    """The first check and dtype in which a run with this seed finds it; empty: none."""
    client: Any = Local("wrong", AtSizes(fault))
    for name in ("forward", "low_precision", "batch", "layout"):
        for dtype in CHECKS[name].dtypes:
            tally = Tally("wrong", name, fault.operator, dtype)
            cell = Exploration(
                client, CHECKS[name], OPERATORS[fault.operator], dtype, tally, fault.examples,
                lambda case: False,
            )  # fmt: skip
            if cell.faults(seed_of_cell(CHECKS[name], fault.operator, dtype, "wrong", seed)):
                return f"{name} {dtype}"
    return ""


def main(seeds: int, *words: str) -> int:
    """1 if a fault is found with fewer than nine of ten seeds; of those with a word, or all."""
    worst = 1.0
    for fault in PLANTED:
        if words and not any(word in f"{fault.operator}: {fault.name}" for word in words):
            continue
        checks = [found(fault, seed) for seed in range(seeds)]
        share = sum(map(bool, checks)) / seeds
        worst = min(worst, share)
        first = ", ".join(sorted({check or "not found" for check in checks}))
        print(f"{share:5.0%}  {fault.operator}: {fault.name}  ({first})", flush=True)
    return 1 if worst < 0.9 else 0


if __name__ == "__main__":
    seeds, *words = sys.argv[1:] or ["10"]
    sys.exit(main(int(seeds), *words))
