"""Integers and booleans in compiled code: exactly right, in their own dtype."""

from d5test.case import Case
from d5test.checks import compiled_integers
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(compiled_integers)
def test_compiled_integers(backend: BackendClient, case: Case) -> Judgement:
    return compiled_integers(backend, case)
