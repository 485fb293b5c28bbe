"""Elementary functions are right on all numbers of 16 bits, strata of the others, and on pairs."""

from d5test.case import Case
from d5test.checks import accuracy
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(accuracy)
def test_accuracy(backend: BackendClient, case: Case) -> Judgement:
    return accuracy(backend, case)
