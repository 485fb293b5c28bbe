"""Each `backward` is the transpose of the derivative that dual numbers find of its `forward`.

<dy, J t> = <backward(dy), t> for random tangents t: a single wrong element shows, since rounding
is the only other difference. At ties and kinks the bars say how far subgradients may differ.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from d5test.case import Case, Operator
from d5test.numerics.bounds import double
from d5test.numerics.proof import Proof
from d5test.reference.operators import OPERATORS
from d5test.reference.stable import stable
from d5test.strategies import cases

ROUNDING = 1e-13
DIFFERENTIABLE = [n for n, cls in OPERATORS.items() if cls.backward is not Operator.backward]


@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_backward_is_the_transposed_derivative(name: str) -> None:
    proved = 0

    @seed(500)
    @settings(max_examples=20, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(cases(OPERATORS[name], "float64"))
    def prove(case: Case) -> None:
        nonlocal proved
        arrays = double(case.arrays())
        with np.errstate(all="ignore"):
            grads = case.upstream(case.op(*arrays))
        proof = Proof(case, arrays, grads)
        proof.require_shapes()
        proof.require_subgradients()
        found = proof.difference(next(proof.directions()))
        assert found.error <= ROUNDING * found.size + found.bars, case
        assert found.excess <= 0, case
        proved += found.error > 0 or found.size > 0

    prove()
    assert proved >= 10


@pytest.mark.parametrize(
    ("name", "attributes", "y", "slope"),
    [
        ("Elu", {"alpha": -0.5}, -0.5 * np.expm1(-2), -0.5 * np.exp(-2)),
        ("Elu", {"alpha": 0.0}, 0.0, 0.0),
        ("Celu", {"alpha": -0.5}, -0.5 * np.expm1(4), np.exp(4)),
        ("Selu", {"alpha": -0.5, "gamma": 1.5}, -0.75 * np.expm1(-2), -0.75 * np.exp(-2)),
        ("Selu", {"alpha": 0.5, "gamma": -1.5}, -0.75 * np.expm1(-2), -0.75 * np.exp(-2)),
    ],
)
def test_attributes_that_turn_the_sign(
    name: str, attributes: dict[str, float], y: float, slope: float
) -> None:
    """At -2 the curve, at 3 the line, whatever the sign of the output."""
    op, gamma = OPERATORS[name](**attributes), attributes.get("gamma", 1.0)
    x = np.array([-2.0, 3.0])
    outputs = op(x)
    (dx,) = op.vjp((np.ones(2),), (x,), outputs)
    np.testing.assert_allclose(outputs[0], [y, 3 * gamma], rtol=1e-14)
    np.testing.assert_allclose(stable(op, x), [y, 3 * gamma], rtol=1e-14)
    np.testing.assert_allclose(dx, [slope, gamma], rtol=1e-13)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (1, 1), (3, 1, 1)])
def test_the_gradient_of_a_determinant_has_the_shape_of_the_matrices(
    shape: tuple[int, ...],
) -> None:
    """The determinant of no rows is 1, whatever stands in them."""
    op, x = OPERATORS["Det"](), np.full(shape, 3.0)
    (y,) = op(x)
    assert np.all(y == (3.0 if shape[-1] else 1.0))
    (dx,) = op.vjp((np.ones_like(y),), (x,))
    assert dx.shape == shape
    assert np.all(dx == 1)
