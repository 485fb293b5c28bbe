"""Other calls of the framework are as exact with integers and booleans as an operator's row."""

from d5test.case import Case
from d5test.checks import integer_forms
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(integer_forms)
def test_integer_forms(backend: BackendClient, case: Case) -> Judgement:
    return integer_forms(backend, case)
