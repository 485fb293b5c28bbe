"""Integers as data: which operators have them, and that the reference is right with them."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, seed, settings
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from d5test.case import Case, Operator
from d5test.checks import CHECKS
from d5test.exploration.draws import PROFILE, reproducible_draws
from d5test.numerics.integers import computed_bounds, integer_bounds
from d5test.reference.node import to_node
from d5test.reference.operators import OPERATORS
from d5test.strategies import integers
from d5test.values import REGIMES
from tests.nightly import thinned

OF_INDICES = {
    "ArrayFeatureExtractor", "Binarizer", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "BlackmanWindow", "Cast", "CastLike", "ConstantOfShape",
    "ConvInteger", "DequantizeLinear", "EyeLike", "HammingWindow", "HannWindow", "MatMulInteger",
    "MelWeightMatrix", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "Range", "Shape", "Size",
}  # fmt: skip
"""Operators whose ordinary cases have integers for data, where they may."""
EVALUATED_OTHERWISE = {
    "GatherElements": "refuses indices of fewer rows than the data",
    "Col2Im": "refuses int8",
    "MaxPool": "counts indices within each channel",
    "OneHot": "refuses a depth of one dimension",
    "Pad": "refuses to cut off",
    "PRelu": "returns another dtype",
    "ScatterElements": "refuses int8",
    "ScatterND": "refuses int8",
    "Unique": "returns slices in another order",
}
"""What ONNX's evaluator does not do, or not as ONNX says."""


def has_integers(operator: type[Operator]) -> bool:
    """Whether ONNX's schema allows integers for the first input of an operator."""
    domain, name = operator.node_type()
    if operator.random or not defs.has(name, domain):
        return False
    schema: Any = defs.get_schema(name, domain=domain)
    if not schema.inputs:
        return False
    first = schema.inputs[0].type_str
    types = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return any("int" in t and t.startswith("tensor(") for t in types.get(first, [first]))


def test_every_operator_that_onnx_has_for_integers_is_judged_or_named() -> None:
    asked = {operator.__name__ for operator in integers.OPERATORS}
    allowed = {name for name, operator in OPERATORS.items() if has_integers(operator)}
    assert allowed - OF_INDICES - integers.OPEN <= asked
    assert asked <= allowed | {"Where"}  # whose first input is a condition
    assert not asked & (integers.OPEN | OF_INDICES)


@pytest.mark.parametrize(
    "operator",
    thinned([op for op in integers.OPERATORS if op.__name__ not in EVALUATED_OTHERWISE], 3),
    ids=lambda op: op.__name__,
)
def test_the_reference_is_onnxs_own_in_integers(operator: type[Operator]) -> None:
    judged = 0

    def compare(case: Case) -> None:
        nonlocal judged
        arrays, places = case.arrays(), integers.data_of(operator)
        data = arrays[places[0]]
        assert data is not None
        if integers.OPERATORS[operator] is integers.COMPUTED:
            expected = computed_bounds(case.op, arrays, places, data.dtype)
        else:
            expected = integer_bounds(case.op, arrays, 1)
        for bound, want in zip(expected, evaluated(case), strict=False):
            assert bound is not None
            np.testing.assert_array_equal(
                np.where(bound.judged, bound.value, 0), np.where(bound.judged, want, 0)
            )
            judged += int(bound.judged.sum())

    run = settings(PROFILE, max_examples=12)(
        given(case=CHECKS["integers"].cases(operator, "float32"))(compare)
    )
    with reproducible_draws():
        seed(1)(run)()
    assert judged > 0


def evaluated(case: Case) -> list[Any]:
    """What ONNX's reference evaluator makes of a case."""
    arrays = case.arrays()
    names = [None if x is None else f"x{i}" for i, x in enumerate(arrays)]
    ys = [f"y{k}" for k in range(len(case.op(*arrays)))]
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype
    feeds = {n: x for n, x in zip(names, arrays, strict=True) if x is not None and n is not None}
    graph = helper.make_graph(
        [to_node(case.op, names, ys)],
        "one",
        [info(name, kind(x.dtype), x.shape) for name, x in feeds.items()],
        [info(y, onnx.TensorProto.UNDEFINED, None) for y in ys],
    )
    imports = [helper.make_opsetid("", defs.onnx_opset_version())]
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
    with np.errstate(all="ignore"):
        return list(evaluator.run(None, feeds))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8"])
def test_neighbours_have_their_leading_bits_in_common(dtype: str) -> None:
    x = REGIMES["akin"](np.random.Philox(key=[1, 0]), (1000,), np.dtype(dtype))
    assert x.dtype == dtype
    apart = np.abs(np.diff(np.sort(x.astype(object))))
    assert min(apart) <= 1 < max(apart)
    divisors = REGIMES["divisors"](np.random.Philox(key=[1, 0]), (1000,), np.dtype(dtype))
    assert np.all(divisors != 0)


def test_a_result_beyond_the_dtype_is_not_judged() -> None:
    x = np.array([100, 27, -128], np.int8)
    (bound,) = computed_bounds(OPERATORS["Add"](), (x, x), (0, 1), x.dtype)
    assert bound is not None
    assert bound.judged.tolist() == [False, True, False]
    assert bound.value.tolist() == [0, 54, 0]
    assert bound.value.dtype == np.int8
    (wide,) = computed_bounds(OPERATORS["ReduceSum"](), (x, None), (0,), np.dtype(np.int64))
    assert wide is not None
    assert (wide.value.tolist(), wide.value.dtype) == ([-1], np.int64)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_numbers_with_one_ending_are_equal_in_a_narrower_dtype(dtype: str) -> None:
    half, alike = np.uint64(2 ** (4 * np.dtype(dtype).itemsize)), 0
    for key in range(8):
        x = REGIMES["endings"](np.random.Philox(key=[key, 0]), (50,), np.dtype(dtype))
        assert x.dtype == dtype
        assert len(np.unique(x)) > 3
        alike += len(np.unique(x.astype(np.uint64) % half)) == 1
    assert 0 < alike < 8
