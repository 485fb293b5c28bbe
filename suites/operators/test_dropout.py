"""A Dropout in training drops as many as it should, and scales the others."""

from d5test.case import Case
from d5test.checks import dropout
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(dropout)
def test_dropout(backend: BackendClient, case: Case) -> Judgement:
    return dropout(backend, case)
