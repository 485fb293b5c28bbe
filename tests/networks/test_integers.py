"""Integers in a network stay integers: ONNX's own node cases, on every backend."""

import functools

import numpy as np
import pytest
from onnx.backend.test.case.node import collect_testcases

from d5test.backends.base import Unsupported
from d5test.client.client import InProcessClient
from d5test.networks.executor import Executor
from d5test.networks.network import Network
from tests.nightly import thinned

CASES = (
    "test_div_int8", "test_div_int16", "test_div_int32_trunc", "test_div_uint8",
    "test_div_uint16", "test_div_uint32", "test_div_uint64",
    "test_pow_types_int64_float32", "test_pow_types_int32_float32",
    "test_add_uint8", "test_sub_uint8", "test_mul_uint8", "test_max_int8", "test_min_uint64",
)  # fmt: skip


@functools.cache
def cases():
    return {case.name: case for case in collect_testcases(None) if case.name in CASES}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", thinned(["torch", "numpy", "tensorflow", "jax"], 2))
def test_a_node_of_integers_computes_integers(name: str, backend: str) -> None:
    case = cases()[name]
    network = Network(case.model)
    with InProcessClient(backend) as client:
        executor = Executor(client, network)
        for inputs, outputs in case.data_sets:
            feed = dict(zip(network.inputs, inputs, strict=True))
            try:
                results = executor.inference(feed)
            except Unsupported:
                assert backend != "numpy"  # a framework may refuse; the reference computes
                return
            (got,), (want,) = results.values(), outputs
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
