"""The framework's own second derivatives, gradients of gradients, lie within their bars."""

from d5test.case import Case
from d5test.checks import second_gradient
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(second_gradient)
def test_second_gradient(backend: BackendClient, case: Case) -> Judgement:
    return second_gradient(backend, case)
