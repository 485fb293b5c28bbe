"""Integers and booleans as data: exactly right, in their own dtype."""

from d5test.case import Case
from d5test.checks import integers
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(integers)
def test_integers(backend: BackendClient, case: Case) -> Judgement:
    return integers(backend, case)
