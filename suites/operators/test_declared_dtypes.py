"""The dtypes that a backend declares are those that work."""

from d5test.case import Case
from d5test.checks import declared_dtypes
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(declared_dtypes)
def test_declared_dtypes(backend: BackendClient, case: Case) -> Judgement:
    return declared_dtypes(backend, case)
