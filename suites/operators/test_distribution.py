"""What is drawn by chance has the distribution that ONNX names, and follows its seed."""

from d5test.case import Case
from d5test.checks import distribution
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(distribution)
def test_distribution(backend: BackendClient, case: Case) -> Judgement:
    return distribution(backend, case)
