"""What is invalid raises an exception, and does not end the process."""

from d5test.case import Case
from d5test.checks import invalid_arguments
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(invalid_arguments)
def test_invalid_arguments(backend: BackendClient, case: Case) -> Judgement:
    return invalid_arguments(backend, case)
