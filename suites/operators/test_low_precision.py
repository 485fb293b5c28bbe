"""16-bit results lie within the bars of the tightest class of arithmetic that holds them."""

from d5test.case import Case
from d5test.checks import low_precision
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(low_precision)
def test_low_precision(backend: BackendClient, case: Case) -> Judgement:
    return low_precision(backend, case)
