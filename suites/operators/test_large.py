"""Calls beyond 2^31 bytes and beyond 2^31 elements, where memory allows: --sizes=large."""

from d5test.case import Case
from d5test.checks import (
    large_bytes,
    large_bytes_gradient,
    large_elements,
    large_elements_gradient,
)
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.suite import given_cases


@given_cases(large_bytes)
def test_large_bytes(backend: BackendClient, case: Case) -> Judgement:
    return large_bytes(backend, case)


@given_cases(large_elements)
def test_large_elements(backend: BackendClient, case: Case) -> Judgement:
    return large_elements(backend, case)


@given_cases(large_bytes_gradient)
def test_large_bytes_gradient(backend: BackendClient, case: Case) -> Judgement:
    return large_bytes_gradient(backend, case)


@given_cases(large_elements_gradient)
def test_large_elements_gradient(backend: BackendClient, case: Case) -> Judgement:
    return large_elements_gradient(backend, case)
