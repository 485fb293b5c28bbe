"""NaN, infinities and signed zeros go where they should."""

from d5test.case import Case
from d5test.checks import special
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(special)
def test_special(backend: BackendClient, case: Case) -> Judgement:
    return special(backend, case)
