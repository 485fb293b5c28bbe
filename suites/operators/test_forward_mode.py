"""Outputs move, when the inputs do, as the framework's forward mode says they do."""

from d5test.case import Case
from d5test.checks import forward_mode
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(forward_mode)
def test_forward_mode(backend: BackendClient, case: Case) -> Judgement:
    return forward_mode(backend, case)
