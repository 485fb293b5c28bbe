"""Gradients of strided inputs under strided, broadcast and expanded upstream gradients."""

from d5test.case import Case
from d5test.checks import layout_gradient
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(layout_gradient)
def test_layout_gradient(backend: BackendClient, case: Case) -> Judgement:
    return layout_gradient(backend, case)
