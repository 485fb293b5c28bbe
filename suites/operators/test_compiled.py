"""Compiled equals eager, and was compiled."""

from d5test.case import Case
from d5test.checks import compiled
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(compiled)
def test_compiled(backend: BackendClient, case: Case) -> Judgement:
    return compiled(backend, case)
