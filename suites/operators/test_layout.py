"""Strided, transposed, broadcast and offset inputs give the same results and keep their values."""

from d5test.case import Case
from d5test.checks import layout
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(layout)
def test_layout(backend: BackendClient, case: Case) -> Judgement:
    return layout(backend, case)
