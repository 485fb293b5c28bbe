"""Gradients of elementary functions of one input are right on every kind of number."""

from d5test.case import Case
from d5test.checks import accuracy_gradient
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(accuracy_gradient)
def test_accuracy_gradient(backend: BackendClient, case: Case) -> Judgement:
    return accuracy_gradient(backend, case)
