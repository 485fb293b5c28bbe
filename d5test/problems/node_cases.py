"""ONNX's own node cases, on the references: an independent authority for every forward.

They come with the package `onnx`, which generates them: nothing is copied.
"""

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from d5test.case import Array, Operator
from d5test.reference.node import NotModelled, from_node
from d5test.reference.operators import OPERATORS
from d5test.values import finfo

ROUNDINGS = 4
"""In 16 bits ONNX rounds every step: results are as many roundings of the format apart."""
BY_NORM = {"test_dft_inverse", "test_dft_inverse_opset19"}
"""Cases computed by a fast transform in float32, which errs relative to the largest numbers."""
TIED = {"test_dynamicquantizelinear"}
"""Cases in which a quotient is exactly a half, as of -2.5 and 5 / 255, and float32's is not."""


@cache
def node_cases() -> dict[str, Any]:
    """Every node case, by name, as ONNX's `TestCase`."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {test.name: test for test in load_model_tests(kind="node")}


@cache
def operator_of(name: str) -> tuple[Operator | None, str]:
    """The operator of a node case; without one, the reason."""
    model = node_cases()[name].model
    if len(model.graph.node) != 1:
        return None, "several nodes"
    (node,) = model.graph.node
    opset = next(o.version for o in model.opset_import if o.domain == node.domain)
    try:
        op = from_node(node, opset)
    except NotModelled as error:
        return None, str(error)
    given = {TensorProto.DataType.Name(x.type.tensor_type.elem_type) for x in model.graph.input}
    if "STRING" in given:
        return None, "text"
    if "UNDEFINED" in given:
        return None, "sequences and what may be absent"
    if name in TIED:
        return None, "decided by how float32 rounds a half"
    return op, ""


def array(value: Any, *, typed: bool = False) -> Array:
    """A value of a node case as the references take it.

    Floats in float64; not if `typed`, nor those of eight bits and less, which say a format.
    """
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    x: Array = np.asarray(value)
    exact = typed or x.dtype.kind in "biu" or x.dtype.itemsize == 1
    return x if exact else x.astype(np.float64)


def failure(name: str) -> str:
    """What the reference computes otherwise than this node case expects; empty: nothing."""
    op, reason = operator_of(name)
    if op is None:
        return reason
    (node,) = node_cases()[name].model.graph.node
    for inputs, expected in data_sets(name):
        given = {key: array(x, typed=op.typed) for key, x in inputs.items()}
        with np.errstate(all="ignore"):
            outputs = op(*(given[key] if key else None for key in node.input))
        named = {key: y for key, y in zip(node.output, outputs, strict=False) if key}
        if difference := differences(name, named, expected, exact=op.typed):
            return difference
    return ""


def data_sets(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The inputs and the results of a node case, by name."""
    test = node_cases()[name]
    for inputs, expected in test.data_sets:
        yield (
            {i.name: x for i, x in zip(test.model.graph.input, inputs, strict=True)},
            {o.name: y for o, y in zip(test.model.graph.output, expected, strict=True)},
        )


def differences(
    name: str, got: Mapping[str, Array], expected: Mapping[str, Any], *, exact: bool = False
) -> str:
    """How results differ from what a node case expects; empty: not by more than it allows.

    If `exact` nothing is allowed, and the dtypes are compared, too.
    """
    test = node_cases()[name]
    if set(got) != set(expected):
        return f"outputs {', '.join(got)}, not {', '.join(expected)}"
    limits = (0.0, 0.0) if exact else (test.rtol, test.atol)
    kinds = (OPERATORS.get(node.op_type) for node in test.model.graph.node)
    if any(cls is not None and cls.random for cls in kinds):
        limits = (0.0, float(np.finfo(float).max))  # ONNX compares the shapes of what is drawn
    if name in BY_NORM:
        largest = max(float(np.abs(array(want)).max()) for want in expected.values())
        limits = test.rtol, max(test.atol, float(np.finfo(np.float32).eps) * largest)
    found = (_difference(name, got[name], expected[name], exact, *limits) for name in expected)
    return next(filter(None, found), "")


def _difference(name: str, y: Any, want: Any, exact: bool, rtol: float, atol: float) -> str:
    """How an output differs: an array, a sequence of such, or None."""
    if isinstance(want, list):
        if not isinstance(y, list) or len(y) != len(want):
            return f"{name} is no sequence of {len(want)}"
        pairs = enumerate(zip(y, want, strict=True))
        found = (_difference(f"{name}[{i}]", *pair, exact, rtol, atol) for i, pair in pairs)
        return next(filter(None, found), "")
    if not isinstance(y, np.ndarray | np.generic) or want is None:
        return "" if y is want else f"{name} is {y}, not {want}"
    want = numpy_helper.to_array(want) if isinstance(want, onnx.TensorProto) else want
    rtol = rtol if exact else max(rtol, _roundings(np.asarray(want).dtype))
    want = array(want, typed=exact)
    if exact and y.dtype != want.dtype:
        return f"{name} is {y.dtype}, not {want.dtype}"
    y, want = y.astype(np.float64), want.astype(np.float64)
    if y.shape != want.shape:
        return f"{name} has the shape {y.shape}, not {want.shape}"
    if not np.allclose(y, want, rtol=rtol, atol=atol, equal_nan=True):
        return f"{name} is {y.tolist()}, not {want.tolist()}"
    return ""


def _roundings(dtype: np.dtype[Any]) -> float:
    """By which share a result of 16 bits may differ; of others none is allowed for."""
    small = dtype.itemsize == 2 and dtype.kind in "fV"
    return ROUNDINGS * float(finfo(dtype).eps) if small else 0.0
