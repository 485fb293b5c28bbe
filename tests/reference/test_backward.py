"""Each `backward` is the transpose of the derivative that dual numbers find of its `forward`.

<dy, J t> = <backward(dy), t> for random tangents t: a single wrong element shows, since rounding
is the only other difference. At ties and kinks the bars say how far subgradients may differ.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from d5test.case import Case
from d5test.numerics.bounds import double
from d5test.numerics.proof import Proof
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
        arrays = double(case.arrays())
        with np.errstate(all="ignore"):
            grads = case.upstream(case.op(*arrays))
        proof = Proof(case, arrays, grads)
        proof.require_shapes()
        found = proof.difference(next(proof.directions()))
        assert found.error <= ROUNDING * found.size + found.bars, case
        assert found.excess <= 0, case
        proved += found.error > 0 or found.size > 0

    prove()
    assert proved >= 10
