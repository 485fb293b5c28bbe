"""What networks really compute, at its full size, forward and backward: --sizes=real."""

from d5test.case import Case
from d5test.checks import real
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(real)
def test_real(backend: BackendClient, case: Case) -> Judgement:
    return real(backend, case)
