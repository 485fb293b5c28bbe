"""The references against ONNX's own node tests: an independent authority for every forward."""

import warnings
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from d5test.case import Operator
from d5test.reference.node import NotModelled, from_node, to_node
from d5test.reference.operators import (
    OPERATORS,
    comparison,
    creation,
    indexing,
    logic,
    movement,
    quantisation,
    selection,
)

UNTESTED = frozenset({"GlobalLpPool"})
"""Operators of ONNX's domain for which ONNX brings no node test of one node."""
SMALL = {
    "FLOAT4E2M1", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT2", "INT4", "UINT2", "UINT4",
}  # fmt: skip
TIED = {"test_dynamicquantizelinear"}
"""Tests in which a quotient is exactly a half, as of -2.5 and 5 / 255, and float32's is not."""
EXACT = {
    name
    for family in (movement, indexing, comparison, logic, creation, selection, quantisation)
    for name in family.__all__
}
"""Operators that round nothing, in whatever dtype."""


@cache
def node_tests() -> dict[str, Any]:
    """Every node test that ships with ONNX, by name; they are generated, not read."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {test.name: test for test in load_model_tests(kind="node")}


@cache
def operator_of(name: str) -> tuple[Operator | None, str]:
    """The operator of a node test; without one, the reason."""
    model = node_tests()[name].model
    if len(model.graph.node) != 1:
        return None, "several nodes"
    (node,) = model.graph.node
    opset = next(o.version for o in model.opset_import if o.domain == node.domain)
    try:
        op = from_node(node, opset)
    except NotModelled as error:
        return None, str(error)
    kinds, given = (
        {TensorProto.DataType.Name(x.type.tensor_type.elem_type) for x in several}
        for several in (model.graph.output, model.graph.input)
    )
    if "STRING" in given:
        return None, "text"
    if "UNDEFINED" in given:
        return None, "sequences and what may be absent"
    if kinds & SMALL and op.name in quantisation.__all__:
        return None, "formats of less than 8 bits, and floating-point ones of 8"
    if name in TIED:
        return None, "decided by how float32 rounds a half"
    if kinds & {"FLOAT16", "BFLOAT16"}:
        return None, "16-bit arithmetic"
    if not kinds & {"FLOAT", "DOUBLE"} and op.name not in EXACT:
        return None, "integer arithmetic"
    return op, ""


def modelled() -> list[str]:
    return [name for name in node_tests() if operator_of(name)[0] is not None]


def array(value: Any) -> np.ndarray[Any, Any]:
    """A value of a node test as the references take it: floats in float64."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    value = np.asarray(value)
    return value if value.dtype.kind in "biu" else value.astype(np.float64)


@pytest.mark.parametrize("name", modelled())
def test_forward(name: str) -> None:
    test = node_tests()[name]
    op, _ = operator_of(name)
    assert op is not None
    graph = test.model.graph
    (node,) = graph.node
    for inputs, expected in test.data_sets:
        given = {i.name: array(x) for i, x in zip(graph.input, inputs, strict=True)}
        outputs = op(*(given[key] if key else None for key in node.input))
        named = {key: y for key, y in zip(node.output, outputs, strict=False) if key}
        assert set(named) == {o.name for o in graph.output}
        for o, want in zip(graph.output, expected, strict=True):
            want = array(want)
            assert named[o.name].shape == want.shape, o.name
            np.testing.assert_allclose(
                named[o.name].astype(np.float64),
                want.astype(np.float64),
                rtol=test.rtol,
                atol=test.atol,
                err_msg=o.name,
            )


def test_nodes_survive_the_way_there_and_back() -> None:
    for name in modelled():
        op, _ = operator_of(name)
        assert op is not None
        (node,) = node_tests()[name].model.graph.node
        written = to_node(op, list(node.input), list(node.output))
        assert from_node(written) == op
        given = list(node.input)
        while not given[-1]:  # left out at the end, or not mentioned: the same
            given.pop()
        assert list(written.input) == given
        assert list(written.output) == list(node.output)


def test_what_is_not_run_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = Counter(operator_of(name)[1] or "run" for name in node_tests())
    covered = Counter(op.name for name in node_tests() if (op := operator_of(name)[0]) is not None)
    with capsys.disabled():
        print(f"\nONNX {onnx.__version__} node tests: {reasons.total()}")
        for reason, count in reasons.most_common():
            print(f"{count:6} {reason}")
        print("   run:", ", ".join(f"{name} {n}" for name, n in sorted(covered.items())))
    ours = {name for name, cls in OPERATORS.items() if cls.domain == ""}
    assert ours - set(covered) == UNTESTED
    assert reasons["run"] == sum(covered.values()) > 400
