"""Other values, at the same address or another, give other results."""

from d5test.case import Case
from d5test.checks import no_caching
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(no_caching)
def test_no_caching(backend: BackendClient, case: Case) -> Judgement:
    return no_caching(backend, case)
