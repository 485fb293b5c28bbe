"""Every element of every output lies within the reference's error bar."""

from d5test.case import Case
from d5test.checks import forward
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(forward)
def test_forward(backend: BackendClient, case: Case) -> Judgement:
    return forward(backend, case)
