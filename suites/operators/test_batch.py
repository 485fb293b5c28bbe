"""A sample's result does not depend on the other samples of its batch."""

from d5test.case import Case
from d5test.checks import batch
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(batch)
def test_batch(backend: BackendClient, case: Case) -> Judgement:
    return batch(backend, case)
