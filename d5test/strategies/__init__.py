"""Hypothesis strategies: what cases of an operator look like. One module per family.

`cases(Softmax, "float32")` draws cases; `operators(Softmax)` draws operators; `attributes` and
`inputs` register the strategy of an operator, ours or a stranger's; `Draw` is what they draw with.
`sizes` has the sizes at which kernels change, `upstream` the upstream gradients, `pairs` the pairs
of attribute values that a cell has met. `windows` are convolutions and poolings.
"""

from importlib import import_module

from d5test.strategies.draw import Draw
from d5test.strategies.registry import (
    attributes,
    case_with,
    cases,
    choices,
    drawable,
    inputs,
    operators,
)

__all__ = [
    "Draw",
    "attributes",
    "case_with",
    "cases",
    "choices",
    "drawable",
    "inputs",
    "operators",
]

for family in (
    "classical",
    "comparison",
    "creation",
    "elementwise",
    "indexing",
    "linear",
    "logic",
    "movement",
    "normalisation",
    "quantisation",
    "random",
    "recurrent",
    "reductions",
    "sampling",
    "selection",
    "signal",
    "types",
    "updates",
    "windows",
):
    import_module(f"{__name__}.{family}")
