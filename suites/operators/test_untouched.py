"""Inputs and upstream gradients are left as they were."""

from d5test.case import Case
from d5test.checks import untouched
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(untouched)
def test_untouched(backend: BackendClient, case: Case) -> Judgement:
    return untouched(backend, case)
