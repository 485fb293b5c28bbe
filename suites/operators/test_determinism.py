"""The same call gives the same bits."""

from d5test.case import Case
from d5test.checks import determinism
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(determinism)
def test_determinism(backend: BackendClient, case: Case) -> Judgement:
    return determinism(backend, case)
