"""The framework's gradient agrees with differences of the framework's own forward."""

from d5test.case import Case
from d5test.checks import numerical_gradient
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(numerical_gradient)
def test_numerical_gradient(backend: BackendClient, case: Case) -> Judgement:
    return numerical_gradient(backend, case)
