"""NaN and infinities in upstream gradients go where they should."""

from d5test.case import Case
from d5test.checks import special_gradient
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(special_gradient)
def test_special_gradient(backend: BackendClient, case: Case) -> Judgement:
    return special_gradient(backend, case)
