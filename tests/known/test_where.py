"""Conditions over cases, and cases from their reprs: data, never code."""

import math

import pytest

from d5test.case import Case, Tensor
from d5test.known.reading import case_from
from d5test.known.where import holds, validate
from d5test.reference.operators import OPERATORS

Conv, Softmax = OPERATORS["Conv"], OPERATORS["Softmax"]
CONV = Case(
    Conv(strides=(2, 3)),
    (Tensor((2, 3, 5, 7), values=("heavy",)), Tensor((4, 3, 2, 2), layout="transposed"), None),
    seed=11,
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, True),
        ({"strides": [2, 3]}, True),
        ({"strides": [[1, 1], [2, 3]]}, True),
        ({"strides": [3, 2]}, True),  # alternatives: some entry is 3 or 2
        ({"strides": [4, 5]}, False),
        ({"strides": 3}, True),
        ({"strides": 5}, False),
        ({"strides[1]": 3}, True),
        ({"strides[0]": 3}, False),
        ({"strides[5]": 3}, False),
        ({"strides": {"min": 3}}, True),
        ({"strides": {"min": 4}}, False),
        ({"shape0[-1]": {"min": 6, "max": 7}}, True),
        ({"shape0[-1]": {"min": 6, "not": [7, 8]}}, False),
        ({"shape1": [4, 3, 2, 2]}, True),
        ({"rank0": 4, "size0": 210, "inputs": 3}, True),
        ({"rank0": 4, "size0": 211}, False),
        ({"regime0": ["heavy", "offset"]}, True),
        ({"regime1": ["heavy", "offset"]}, False),
        ({"layout1": "transposed", "dtype1": "float32"}, True),
        ({"present2": False}, True),
        ({"present2": True}, False),
        ({"shape2": {"min": 0}}, False),
        ({"group": {"not": 1}}, False),
        ({"auto_pad": "NOTSET"}, True),
    ],
)
def test_conditions(where: dict[str, object], expected: bool) -> None:
    validate(where, Conv)
    assert holds(where, CONV) is expected


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ({"stride": 2}, "'stride' is not an attribute of Conv"),
        ({"shape": 2}, "'shape' is not an attribute"),
        ({"__class__": 2}, "not an attribute"),
        ({"strides; import os": 2}, "not an attribute"),
        ({"strides": {"atleast": 2}}, "takes min, max, not, below, odd"),
        ({"strides": {}}, "takes min, max, not, below, odd"),
        ({"shape0": {"odd": False}}, "odd of 'shape0' should be true, not False"),
        ({"shape0": {"below": 5}}, r"below of 'shape0' should be a list of fields, .*, not 5"),
        ({"shape0": {"min": "2"}}, "min of 'shape0' should be a number, not '2'"),
        ({"shape0": [{"min": 2}]}, "takes values and lists"),
    ],
)
def test_what_can_never_be_evaluated_is_refused(where: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        validate(where, Conv)


def test_a_case_comes_back_from_its_repr() -> None:
    tensor = Tensor((3,), "float16", data=(1.5, -math.inf, -0.0))
    other = Case(Softmax(axis=0), (tensor,), seed=2**31)
    for case in (CONV, other):
        assert case_from(repr(case), OPERATORS) == case
    nan = case_from("Case(Softmax(), (Tensor((1,), data=(nan,)),))", OPERATORS)
    assert math.isnan(nan.arrays()[0][0])


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Case(Softmax(axis=().__class__), ())",
        "Case(eval('1'), ())",
        "Case(Softmax(axis=1 + 1), ())",
        "Case(Softmax(**{'axis': 1}), ())",
        "Case(Softmax(sides=1), ())",
        "Case(Softmax(axis=[x for x in (1,)]), ())",
        "Softmax()",
        "Case(",
        "Case(lambda: 0, ())",
        "Case(5, (Tensor((2,)),))",
        "Case(Softmax(), 5)",
        "Case(Softmax(), (5,))",
        "Case(Softmax(), (Tensor((-2,)),))",
        "Case(Softmax(), (Tensor((10**9,)),))",
        "Case(Softmax(), (Tensor((1000, 1000, 1000)),))",
        "Case(Softmax(), (Tensor((2,), data=(1.0,)),))",
        "Case(Softmax(), (Tensor((2,), dtype='float23'),))",
        "Case(Softmax(), (Tensor((2,), values=('no such regime',)),))",
        f"Case(Softmax(axis={'9' * 5000}), (Tensor((2,)),))",
        f"Case(Softmax(axis={'(' * 5000}), (Tensor((2,)),))",
        f"Case(Softmax(axis={'-' * 5000}1), (Tensor((2,)),))",
    ],
)
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^case: "):
        case_from(text, OPERATORS)


def test_magnitudes_are_those_of_the_values_but_zero() -> None:
    op = OPERATORS["Relu"]()
    case = Case(op, (Tensor((4,), data=(0.0, -0.5, math.inf, 0.25)),))
    assert holds({"smallest0": 0.25, "largest0": 0.5}, case)
    assert not holds({"smallest0": {"max": 0.2}}, case)
    assert not holds({"smallest0": {}}, Case(op, (Tensor((0,)),)))
    one = Case(op, (Tensor((3,), values=("scaled", -6)),), seed=5)
    smallest = abs(one.arrays()[0]).min()  # type: ignore[union-attr]
    assert holds({"smallest0": {"min": float(smallest), "max": float(smallest)}}, one)


def test_one_axis_is_the_same_in_all_conditions() -> None:
    where = {"strides[*]": 3, "shape0[*]": 7}
    validate(where, Conv)
    assert holds(where, CONV)  # the last axis has both
    assert not holds({"strides[*]": 2, "shape0[*]": 7}, CONV)  # each on an axis of its own
    assert not holds({"strides[*]": 3, "shape0[*]": 2}, CONV)  # no stride belongs to the batch
    assert holds({"strides": 2, "shape0": 7}, CONV)
    assert holds({"strides[*]": {"min": 2}, "shape1[*]": {"max": 2}, "group": 1}, CONV)


def test_a_subnormal_number_is_one_of_its_dtype() -> None:
    op = OPERATORS["Relu"]()
    validate({"subnormal0": True}, type(op))
    for dtype, smallest in (("float32", 1.17549435e-38), ("float64", 2.2250738585072014e-308)):
        normal = Case(op, (Tensor((3,), dtype, data=(0.0, smallest, 1.0)),))
        below = Case(op, (Tensor((3,), dtype, data=(0.0, smallest / 4, 1.0)),))
        assert holds({"subnormal0": False}, normal)
        assert holds({"subnormal0": True}, below)


def test_a_number_can_be_required_to_be_below_the_sum_of_others() -> None:
    validate({"shape1[0]": {"below": ["shape0[1]"]}}, Conv)
    assert not holds({"shape1[0]": {"below": ["shape0[1]"]}}, CONV)  # 4 and 3
    assert not holds({"shape1[0]": {"below": ["shape1[0]"]}}, CONV)
    assert holds({"shape1[0]": {"below": ["shape0[1]", "strides[0]", "shape2[0]"]}}, CONV)
    with pytest.raises(ValueError, match="'shap' is not an attribute"):
        validate({"shape1[0]": {"below": ["shap"]}}, Conv)


def test_below_means_the_same_axis() -> None:
    where = {"shape0[*]": {"below": ["kernel_shape[*]"]}}

    def pooled(*size: int) -> Case:
        return Case(OPERATORS["AveragePool"](kernel_shape=(3, 5)), (Tensor((2, 9, *size)),))

    assert holds(where, pooled(3, 4))
    assert holds(where, pooled(2, 5))
    assert not holds(where, pooled(4, 5))
