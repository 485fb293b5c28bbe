"""Empty, scalar and size-one shapes."""

from d5test.case import Case
from d5test.checks import degenerate
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(degenerate)
def test_degenerate(backend: BackendClient, case: Case) -> Judgement:
    return degenerate(backend, case)
