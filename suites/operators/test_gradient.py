"""The framework's own gradients, under random upstream gradients, lie within their bars."""

from d5test.case import Case
from d5test.checks import gradient
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(gradient)
def test_gradient(backend: BackendClient, case: Case) -> Judgement:
    return gradient(backend, case)
