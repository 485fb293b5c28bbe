"""Other calls of the framework that compute what an operator's row does give the same results."""

from d5test.case import Case
from d5test.checks import forms
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(forms)
def test_forms(backend: BackendClient, case: Case) -> Judgement:
    return forms(backend, case)
