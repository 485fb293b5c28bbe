"""Each `backward` is the transpose of the derivative that dual numbers find of its `forward`.

<dy, J t> = <backward(dy), t> for random tangents t: a single wrong element shows, since rounding
is the only other difference. At ties and kinks the bars say how far subgradients may differ.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from d5test.case import Case, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import double, gradient_bounds
from d5test.numerics.duals import Dual
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases

ROUNDING = 1e-13


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_backward_is_the_transposed_derivative(name: str) -> None:
    proved = 0

    @seed(500)
    @settings(max_examples=20, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(cases(OPERATORS[name], "float64"))
    def prove(case: Case) -> None:
        nonlocal proved
        error, size, doubt = transpose_error(case)
        assert error <= ROUNDING * size + doubt, case
        proved += error > 0 or size > 0

    prove()
    assert proved >= 10


def transpose_error(case: Case) -> tuple[float, float, float]:
    """|<dy, J t> - <g, t>|, the sum of the magnitudes, and what the bars leave in doubt."""
    arrays = double(case.arrays())
    with np.errstate(all="ignore"):
        outputs = case.op(*arrays)
        grads = case.upstream(outputs)
        gradients = case.op.vjp(grads, arrays, outputs)
    bounds = gradient_bounds(case.op, arrays, grads, classes("float64")[0])
    tangents = [
        Tensor(x.shape, "float64").array(case.seed, 3000 + i)
        if x is not None and gradients[i] is not None
        else None
        for i, x in enumerate(arrays)
    ]
    duals: list[object] = []
    for tensor, x, t in zip(case.inputs, arrays, tangents, strict=True):
        alias = tensor is not None and tensor.same_as is not None
        duals.append(duals[tensor.same_as] if alias else x if t is None else Dual(x, t))
    with np.errstate(all="ignore"):
        derivative = case.op(*duals)
    along = [
        (dy, y.full_companion())
        for dy, y in zip(grads, derivative, strict=True)
        if dy is not None and isinstance(y, Dual)
    ]
    # an input given twice moves by one tangent
    moves = [
        tangents[tensor.same_as if tensor.same_as is not None else i]
        if tensor is not None
        else None
        for i, tensor in enumerate(case.inputs)
    ]
    pairs = [(g, t, b) for g, t, b in zip(gradients, moves, bounds, strict=True) if g is not None]
    left = sum(float(np.sum(dy * ydot)) for dy, ydot in along)
    right = sum(float(np.sum(g * t)) for g, t, _ in pairs)
    size = sum(float(np.sum(np.abs(dy * ydot))) for dy, ydot in along)
    size += sum(float(np.sum(np.abs(g * t))) for g, t, _ in pairs)
    doubt = sum(float(np.sum(np.abs(t) * b.bar)) for _, t, b in pairs if b is not None)
    return abs(left - right), size, doubt
