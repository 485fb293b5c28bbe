"""Known inaccuracies widen the bars by what was measured, and no further."""

from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from d5test.case import Case, Tensor
from d5test.checks import Fault, special
from d5test.known.failure import Known
from d5test.numerics.arithmetic import ErrorModel, attempts, classes
from d5test.numerics.bounds import forward_bounds, gradient_bounds
from d5test.numerics.judgement import judge, rejects
from d5test.reference.formulas import FORMULAS, computed
from d5test.reference.operators import OPERATORS
from tests.faults.score import with_row

(SINGLE,) = classes("float32")
(DOUBLE,) = classes("float64")
LARGEST = SINGLE.storage.largest


def drawn(name: str, *tensors: Tensor, seed: int = 0, **attributes: object) -> Case:
    return Case(OPERATORS[name](**attributes), tensors, seed)


def bounds(case: Case, arithmetic):
    op = computed(case.op, arithmetic.formula, arithmetic.storage.largest)
    return forward_bounds(op, case.arrays(), arithmetic)


def test_an_absolute_error_holds_whatever_is_left_of_the_result() -> None:
    x = np.linspace(-30, -10, 41, dtype=np.float32)
    case = drawn("Sigmoid", Tensor((41,), data=tuple(map(float, x))))
    ulp = 2.0**-23
    wider = ErrorModel("logistic", absolute={"expit": 1.5}).of(SINGLE)
    exact = expit(x.astype(np.float64))
    for shift, plainly, modelled in ((0.0, True, True), (1.4, False, True), (1.6, False, False)):
        got = [(exact + shift * ulp).astype(np.float32)]
        assert judge(bounds(case, SINGLE), got).right is plainly
        assert judge(bounds(case, wider), got).right is modelled


def test_an_absolute_error_is_one_of_an_infinity_too() -> None:
    wider = ErrorModel("logistic", absolute={"expit": 1.5}).of(SINGLE)
    case = drawn("Sigmoid", Tensor((1,), data=(-np.inf,)))
    near = [np.float32([1e-7])]
    assert judge(bounds(case, wider), near).right
    assert not judge(bounds(case, SINGLE), near).right


def test_an_absolute_error_reaches_what_is_computed_of_it() -> None:
    weights = (Tensor((1, 12, 4)), Tensor((1, 12, 3)))
    case = drawn("LSTM", Tensor((2, 3, 4)), *weights, hidden_size=3, seed=5)
    wider = ErrorModel("logistic", absolute={"expit": 64}).of(SINGLE)
    (plain, *_), (wide, *_) = bounds(case, SINGLE), bounds(case, wider)
    grown = (wide.bar - plain.bar) / 2.0**-23
    assert 1 < np.median(grown) < 1000
    assert (grown > 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_sums_that_are_updated_lie_within_their_bars(seed: int) -> None:
    """In float32, with channels a thousand times as large as others."""
    case = drawn("LRN", Tensor((2, 7, 3)), size=3, alpha=0.5, seed=seed)
    (x,) = case.arrays()
    x *= np.where(np.arange(7) == seed % 7, 1e3, 1.0).astype(np.float32)[:, None]
    squares = np.pad(np.float32(0.5 / 3) * x * x, [(0, 0), (1, 1), (0, 0)])
    divisors = [np.float32(1) + squares[:, :3].sum(1)]
    for i in range(6):
        divisors.append(divisors[-1] + squares[:, i + 3] - squares[:, i])
    with np.errstate(invalid="ignore"):
        got = (x / np.stack(divisors, 1) ** np.float32(0.75)).astype(np.float32)
    running = ErrorModel("running", formula="running sums").of(SINGLE)
    op = computed(case.op, running.formula, LARGEST)
    expected = forward_bounds(op, (x,), running)
    assert judge(expected, [got]).right
    assert judge(expected, [got]).share > 0.2
    assert rejects(expected, [np.where(np.arange(7)[:, None] == 0, got * 1.001, got)])


def test_sums_that_are_updated_are_beyond_the_bars_of_sums_that_are_not() -> None:
    case = drawn("LRN", Tensor((1, 3, 1, 1), data=(1000.0, 0.5, 0.5)), size=1, alpha=0.5)
    (x,) = case.arrays()
    got = np.float32([[[[0.05318288]], [[0.46]], [[0.46]]]])  # 0.458 is right
    running = ErrorModel("running", formula="running sums").of(SINGLE)
    assert not judge(bounds(case, SINGLE), [got]).right
    assert judge(bounds(case, running), [got]).right
    assert not judge(bounds(case, running), [got + np.float32(0.1)]).right
    assert x.shape == got.shape


def test_a_float64_operator_in_float32() -> None:
    q = Tensor((1, 2, 3, 4), "float64")
    case = drawn("Attention", q, q, q, seed=9)
    model = ErrorModel("single", arithmetic="float32").of(DOUBLE)
    (exact, *rest), single = case.op(*case.arrays()), [x.astype("f4") for x in case.arrays()]
    got = case.op(*single)[0].astype(np.float64)
    assert not judge(bounds(case, DOUBLE), [got, *rest]).right
    assert judge(bounds(case, model), [got, *rest]).right
    coarse = exact * (1 + 2.0**-11 * np.sign(np.sin(np.arange(exact.size))).reshape(exact.shape))
    assert not judge(bounds(case, model), [coarse, *rest]).right


def test_a_slope_that_is_the_exponential_of_a_difference() -> None:
    x = np.linspace(8, 36, 400, dtype=np.float32)
    case = drawn("Softplus", Tensor((400,), data=tuple(map(float, x))))
    y = np.logaddexp(x, np.float32(0)).astype(np.float32)
    got = [np.exp(x - y)]
    dy = (np.ones_like(x),)
    slope = ErrorModel("slope", formula="slope by difference").of(SINGLE)
    plain = gradient_bounds(case.op, case.arrays(), dy, SINGLE)
    op = computed(case.op, slope.formula, LARGEST)
    wide = gradient_bounds(op, case.arrays(), dy, slope)
    assert not judge(plain, got).right
    assert judge(wide, got).right
    assert not judge(wide, [got[0] * np.float32(1.0001)]).right


@pytest.mark.parametrize(
    ("name", "attributes", "shape", "expected"),
    [
        ("MaxPool", {"kernel_shape": (1,), "strides": (3,)}, (6,), [1, 4]),
        ("AveragePool", {"kernel_shape": (1,), "strides": (3,)}, (6,), [1, 4]),
        ("MaxPool", {"kernel_shape": (2,), "dilations": (2,)}, (5,), [2, 3, 4, 3]),
        ("AveragePool", {"kernel_shape": (2,), "strides": (2,)}, (5,), [0.5, 2.5, 4]),
        ("AveragePool", {"kernel_shape": (3,), "dilations": (2,)}, (2,), []),
        ("MaxPool", {"kernel_shape": (2,), "dilations": (2,), "strides": (3,)}, (3,), [2]),
        ("AveragePool", {"kernel_shape": (2,), "dilations": (2,), "strides": (3,)}, (3,), [0]),
    ],
)
def test_same_padding_of_the_undilated_kernel(
    name: str, attributes: dict[str, object], shape: tuple[int, ...], expected: list[float]
) -> None:
    op = OPERATORS[name](auto_pad="SAME_UPPER", **attributes)
    x = np.arange(float(shape[0])).reshape(1, 1, -1)
    same = computed(op, "SAME of the undilated kernel", LARGEST)
    assert same(x)[0].ravel().tolist() == expected


def test_the_gradient_of_cropped_windows_is_their_adjoint() -> None:
    generator = np.random.default_rng(7)
    op = OPERATORS["AveragePool"](kernel_shape=(1, 2), strides=(3, 1), auto_pad="SAME_UPPER")
    same = computed(op, "SAME of the undilated kernel", LARGEST)
    x, v = generator.standard_normal((2, 2, 3, 6, 5))
    (y,), (dy,) = same(v), (generator.standard_normal(same(x)[0].shape),)
    (dx,) = same.vjp((dy,), (x,), same(x))
    assert np.sum(dx * v) == pytest.approx(np.sum(dy * y), rel=1e-12)
    assert not dx[:, :, 0].any()  # no window sees the first row


def test_a_gradient_at_positions_in_the_padded_input() -> None:
    """As an H200 computed it; without padding both are the same."""
    expected = np.outer([1, 2, 3], [1, 2, 3]) / 9
    for pads, dx in (((1, 1, 1, 1), expected), ((0, 0, 0, 0), np.full((3, 3), 1 / 9))):
        op = OPERATORS["AveragePool"](kernel_shape=(3, 3), pads=pads, count_include_pad=1)
        shifted = computed(op, "positions in the padded input", LARGEST)
        x = np.zeros((1, 1, 3, 3))
        (y,) = shifted(x)
        (got,) = shifted.vjp((np.ones_like(y),), (x,), (y,))
        np.testing.assert_allclose(got[0, 0], dx)


class Swallowing(Known):
    """What is known of a softmax whose sum swallows a NaN."""

    def models(self, case: Case) -> tuple[ErrorModel, ...]:
        return (ErrorModel("swallowed", formula="NaN alone"),)


@pytest.mark.parametrize(
    ("beside", "right"), [(0.0, True), ((np.nan, 0.0, 0.0), True), (2.0**-40, False), (5.0, False)]
)
def test_a_formula_that_says_what_becomes_of_a_nan_is_held_to_it(
    beside: float | tuple[float, ...], right: bool
) -> None:
    class Other(OPERATORS["Softmax"]):
        def forward(self, x):
            spoiled = np.isnan(x).any(self.axis, keepdims=True) & ~np.isnan(x)
            return np.where(spoiled, np.asarray(beside, np.float32), super().forward(x))

    client = with_row(OPERATORS["Softmax"], Other)
    case = drawn("Softmax", Tensor((2, 3)))
    with pytest.raises(Fault, match="nan in an input is swallowed"):
        special(client, case)
    client.known = Swallowing()
    with nullcontext() if right else pytest.raises(Fault, match="swallowed"):
        assert special(client, case).right


def test_a_nan_that_spreads_is_right_where_there_was_a_zero_before() -> None:
    """As oneDNN's vectors have it: the operator's own formula gives NaN there, too."""

    class Other(OPERATORS["Softmax"]):
        def forward(self, x):
            nan = np.isnan(x)
            y = np.where(nan.any(self.axis, keepdims=True), np.float32(0), super().forward(x))
            return np.where(nan | np.roll(nan, 1, self.axis), np.float32(np.nan), y)

    client = with_row(OPERATORS["Softmax"], Other)
    client.known = Swallowing()
    for seed in range(60):
        case = Case(OPERATORS["Softmax"](), (Tensor((2, 9), values=("scaled", 10)),), seed=seed)
        assert special(client, case).right


class OtherPads(Known):
    """What is known of pools with other SAME pads."""

    def models(self, case: Case) -> tuple[ErrorModel, ...]:
        return (ErrorModel("pads", formula="SAME of the undilated kernel"),)


def test_a_formula_is_not_held_to_a_nan_that_onnx_leaves_open() -> None:
    pool = OPERATORS["MaxPool"]
    same = FORMULAS["SAME of the undilated kernel"][pool]

    class Other(same):
        def forward(self, x):
            y, indices = super().forward(x)
            return y, np.where(np.isnan(y), indices.max(), indices)

    client = with_row(pool, Other)
    pads = {"kernel_shape": (3,), "strides": (3,), "dilations": (2,), "auto_pad": "SAME_UPPER"}
    client.known = OtherPads()
    judgement = special(client, drawn("MaxPool", Tensor((2, 4, 3)), **pads))
    assert judgement.right
    assert judgement.model == "pads"


@pytest.mark.parametrize("formula", ["SAME of the undilated kernel", ""])
def test_special_values_beside_a_model_of_another_shape(formula: str) -> None:
    """Right is the formula's shape, and the operator's own."""
    pool = OPERATORS["AveragePool"]
    client = with_row(pool, FORMULAS[formula][pool] if formula else pool)
    client.known = OtherPads()
    pads = {"kernel_shape": (3, 3), "dilations": (2, 1), "auto_pad": "SAME_UPPER"}
    assert special(client, drawn("AveragePool", Tensor((3, 4, 5, 2)), **pads)).right


def test_formulas_are_operators_of_the_same_attributes() -> None:
    for table in FORMULAS.values():
        for cls in table:
            windowed = {f.name for f in fields(cls)} & {"kernel_shape"}
            names: dict[str, Any] = {"kernel_shape": (2,)} if windowed else {}
            names |= {"size": 3} if cls.__name__ == "LRN" else {}
            names |= {"num_groups": 1} if cls.__name__ == "GroupNormalization" else {}
            names |= {"to": 10} if issubclass(cls, OPERATORS["Cast"]) else {}
            names |= {"equation": "ji"} if issubclass(cls, OPERATORS["Einsum"]) else {}
            op = cls(**names)
            assert computed(op, "", LARGEST) is op


def test_classes_come_first_and_models_one_by_one() -> None:
    one, two = ErrorModel("one", ulps={"exp": 8}), ErrorModel("two", absolute={"exp": 1})
    found = list(attempts(classes("float16"), (one, two)))
    assert [(a.name, a.model) for a in found] == [
        (name, model)
        for name in ("F", "P", "S")
        for model in ("", "one", "two", "one + two")
    ]  # fmt: skip
    assert found[3].ulps == {"exp": 8}
    assert found[3].absolute == {"exp": 1}
    assert replace(found[0], model="x").coarse


class NearZero(Known):
    """What is known of a logistic function whose tail is 0."""

    def models(self, case: Case) -> tuple[ErrorModel, ...]:
        return (ErrorModel("tail", absolute={"expit": 1.5}),)


@pytest.mark.parametrize(("below", "right"), [(2.0**-23, True), (2.0**-20, False)])
def test_a_gate_that_may_be_zero_makes_anything_of_an_infinity(below: float, right: bool) -> None:
    class Other(OPERATORS["LSTM"]):
        def gate(self, z):
            y = super().gate(z)
            return np.where(y < below, np.zeros_like(y), y)

    client = with_row(OPERATORS["LSTM"], Other)
    steps, weights = Tensor((3, 2, 5), values=("heavy",)), Tensor((1, 64, 5), values=("heavy",))
    more = (weights, Tensor((1, 64, 16)), None, None, None, Tensor((1, 2, 16), values=("heavy",)))
    case = drawn("LSTM", steps, *more, hidden_size=16, seed=11)
    certain = "the result is nan, but an input of inf makes it "
    with pytest.raises(Fault, match=certain):
        special(client, case)
    client.known = NearZero()
    with nullcontext() if right else pytest.raises(Fault, match=certain):
        assert special(client, case).right


def test_only_pairs_of_uint8_and_int8_saturate() -> None:
    """255 x 127 twice is beyond 16 bits, once it is not; a third term makes a pair of its own."""
    a, b = np.full((1, 3), 255, np.uint8), np.full((3, 1), 127, np.int8)
    pairs = computed(OPERATORS["MatMulInteger"](), "pairs saturate at 16 bits", np.inf)
    assert pairs(a, b)[0].item() == 32767 + 32385
    assert pairs(a[:, :1], b[:1])[0].item() == 32385
    assert pairs(a, b[:, 0])[0].item() == 32767 + 32385
    assert pairs(a, b.view(np.uint8))[0].item() == 3 * 32385
    assert pairs(a, b, np.uint8(5), np.int8(-2))[0].item() == 3 * 250 * 129 - 32003
    x, w = b.reshape(1, 3, 1), a.reshape(1, 3, 1)
    conv = computed(OPERATORS["ConvInteger"](), "pairs saturate at 16 bits", np.inf)
    assert conv(x, w)[0].item() == 32767 + 32385
    assert conv(x.view(np.uint8), w)[0].item() == 3 * 32385
