"""No honest arithmetic is accused of its class, and the next looser one still is.

Each class is emulated: sums in several orders and stages, the formulas as the references have them
and in other factorings, gradients by the references' own backward and by the derivatives of each
primitive. What they give lies within the bars of their class, in drawn cases and in long sums.
"""

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy
from d5test.case import Arrays, Case, Operator, Tensor, dtype_of
from d5test.checks import CHECKS, Fault
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bounds, double, forward_bounds, gradient_bounds
from d5test.numerics.judgement import judge, ratios
from d5test.reference.operators import OPERATORS
from d5test.reproducer import copied
from d5test.strategies import cases
from tests.faults.score import Local
from tests.faults.wrong import LowPrecisionSums
from tests.nightly import at_night
from tests.numerics.emulated import Machine, blocked, composed, pairwise, reverse, run
from tests.numerics.factorings import BACKWARDS, FORWARDS

LONG = 4096
"""Terms of a sum that 16 bits cannot count."""
few = settings(
    max_examples=int(__import__("os").environ.get("MANY", "5")),
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

EMULATIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "F": ({}, {"order": reverse}, {"order": pairwise}),
    "P": (
        {},
        {"products": True, "order": reverse},
        {"staged": True, "order": pairwise},
        {"products": True, "staged": True, "order": blocked},
    ),
    "S": ({}, {"order": reverse}, {"products": True, "order": pairwise}),
}
EMULATIONS[""] = EMULATIONS["P"]

NARROW, SUMS, WEIGHTS = ("uniform", 0.5, 1), ("uniform", 0, 0.01), ("uniform", 0, 2.0**-12)
# fmt: off
LONG_SUMS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "MatMul": ({}, [((3, LONG), NARROW), ((LONG, 4), NARROW)]),
    "Gemm": ({"alpha": 0.5}, [((3, LONG), NARROW), ((LONG, 4), NARROW)]),
    "Einsum": ({"equation": "ij,jk->ik"}, [((3, LONG), NARROW), ((LONG, 4), NARROW)]),
    "Conv": ({}, [((2, LONG, 3), NARROW), ((3, LONG, 2), NARROW)]),
    "ConvTranspose": ({}, [((2, LONG, 3), NARROW), ((LONG, 3, 2), NARROW)]),
    "Attention": ({}, [((1, 1, 3, 2), SUMS), ((1, 1, LONG, 2), SUMS), ((1, 1, LONG, 4), NARROW)]),
    "RNN": ({"hidden_size": 2},
            [((2, 2, LONG), NARROW), ((1, 2, LONG), WEIGHTS), ((1, 2, 2), SUMS)]),
    "LSTM": ({"hidden_size": 2},
             [((2, 2, LONG), NARROW), ((1, 8, LONG), WEIGHTS), ((1, 8, 2), SUMS)]),
    "GRU": ({"hidden_size": 2},
            [((2, 2, LONG), NARROW), ((1, 6, LONG), WEIGHTS), ((1, 6, 2), SUMS)]),
    "BatchNormalization": ({"training_mode": 1}, [((LONG, 3), NARROW), *[((3,), NARROW)] * 4]),
    "LayerNormalization": ({}, [((4, LONG), NARROW), *[((LONG,), NARROW)] * 2]),
    "GroupNormalization": ({"num_groups": 2},
                           [((2, 4, 512), ("positive",)), *[((4,), NARROW)] * 2]),
    "InstanceNormalization": ({}, [((2, 3, LONG), NARROW), *[((3,), NARROW)] * 2]),
    "RMSNormalization": ({}, [((4, LONG), NARROW), ((LONG,), NARROW)]),
    "LRN": ({"size": 3}, [((2, 5, 7), NARROW)]),
    "Softmax": ({}, [((2, LONG), SUMS)]),
    "LogSoftmax": ({}, [((2, LONG), SUMS)]),
    "MaxPool": ({"kernel_shape": (3,)}, [((2, 3, 9), NARROW)]),
    "AveragePool": ({"kernel_shape": (LONG,)}, [((2, 3, LONG + 1), NARROW)]),
    "GlobalAveragePool": ({}, [((2, 3, LONG), NARROW)]),
    "ReduceSum": ({}, [((2, 64, 64), NARROW), ((2,), (1, 2))]),
    "ReduceMean": ({}, [((2, 64, 64), NARROW), ((2,), (1, 2))]),
    # -ln(4096) is -8.3: the result is near zero
    "ReduceLogSumExp": ({}, [((2, LONG), ("uniform", -8.5, -8.2)), ((1,), (1,))]),
    "NegativeLogLikelihoodLoss": ({}, [((LONG, 3), NARROW), ((LONG,), ("below", 3))]),
    "SoftmaxCrossEntropyLoss": ({}, [((2, LONG), SUMS), ((2,), ("below", LONG))]),
}
SEVERAL_SUMS: dict[str, Any] = {
    "ReduceSum": ({}, [((300, 4, 4), ("normal",)), ((2,), (1, 2))]),
    "ReduceMean": ({}, [((300, 4, 4), ("normal",)), ((2,), (1, 2))]),
    "NegativeLogLikelihoodLoss": ({}, [((5, 3), ("normal",)), ((5,), ("below", 3)),
                                       ((3,), ("positive",))]),
}
"""Sums that are much smaller than their parts, or go into a quotient: P rounds, F does not."""
INDISTINGUISHABLE = {
    ("LRN", "S"): "its window is added up by primitives, which P rounds too",
    ("MaxPool", "S"): "nothing is summed but gradients of windows, by primitives",
}
"""Classes that no result shows, each with the reason."""
# fmt: on


def made(name: str, dtype: str, entry: Any, number: int) -> Case:
    attributes, inputs = entry
    tensors = []
    for shape, values in inputs:
        if isinstance(values[0], int):
            tensors.append(Tensor(shape, "int64", data=values))
        else:
            tensors.append(Tensor(shape, "int64" if values[0] == "below" else dtype, values))
    return Case(OPERATORS[name](**attributes), tuple(tensors), number)


def upstream(case: Case) -> Arrays:
    with np.errstate(all="ignore"):
        return case.upstream(case.op(*double(case.arrays())))


def emulated(case: Case, name: str, grads: Arrays) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """What a machine of class `name` gives: a word, whether gradients, the results."""
    op, arrays = case.op, case.arrays()
    # a maximum's derivative is a choice, which the formula of a softmax leaves out
    chosen = op.name in ("GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin")
    for choices in EMULATIONS[name]:
        machine = partial(Machine, case.dtype, name, **choices)
        words = f"class {name}, {choices}"
        yield words, False, run(machine(), op, arrays)
        yield words, True, run(machine(), op, arrays, grads)
        if not chosen and max(x.size for x in arrays if x is not None) < LONG:
            gradients = composed(machine(), op, arrays, grads)
            # more intermediates, of which one may overflow
            if all(np.isfinite(g).all() for g in gradients if g is not None):
                yield f"{words}, composed", True, gradients


class Bars:
    """The bars of a case in each class, made once."""

    def __init__(self, case: Case, grads: Arrays) -> None:
        self.case, self.grads = case, grads
        self.classes = {a.name: a for a in classes(case.dtype)}
        self._made: dict[Any, Bounds] = {}

    def ratio(self, name: str, gradients: bool, results: tuple[Any, ...]) -> float:
        if (name, gradients) not in self._made:
            op, arrays, arithmetic = self.case.op, self.case.arrays(), self.classes[name]
            self._made[name, gradients] = (
                gradient_bounds(op, arrays, self.grads, arithmetic)
                if gradients
                else forward_bounds(op, arrays, arithmetic)
            )
        return judge(self._made[name, gradients], results).ratio


@pytest.mark.parametrize("dtype", ["bfloat16", at_night("float16")])
@pytest.mark.parametrize("name", LONG_SUMS)
def test_each_class_holds_its_own_and_convicts_the_next(name: str, dtype: str) -> None:
    convicted: Counter[str] = Counter()

    def hold(case: Case) -> None:
        grads = upstream(case)
        bars = Bars(case, grads)
        for looser, tighter in (("F", ""), ("P", "F"), ("S", "P")):
            for words, gradients, results in emulated(case, looser, grads):
                assert bars.ratio(looser, gradients, results) <= 1, (words, gradients, case)
                if tighter:
                    convicted[looser] += bars.ratio(tighter, gradients, results) > 1

    seed(12)(few(given(cases(OPERATORS[name], dtype))(hold)))()
    hold(made(name, dtype, LONG_SUMS[name], 3))
    for number in range(8 if name in SEVERAL_SUMS else 0):
        hold(made(name, dtype, SEVERAL_SUMS[name], number))
    for looser in ("P", "S"):
        assert bool(convicted[looser]) is ((name, looser) not in INDISTINGUISHABLE), looser


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LONG_SUMS)
def test_any_order_lies_within_the_bars(name: str, dtype: str) -> None:
    @seed(11)
    @few
    @given(cases(OPERATORS[name], dtype))
    def hold(case: Case) -> None:
        grads = upstream(case)
        bars = Bars(case, grads)
        for words, gradients, results in emulated(case, "", grads):
            assert bars.ratio("", gradients, results) <= 1, (words, gradients, case)

    hold()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("HardSigmoid", {}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("HardSwish", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("LeakyRelu", {"alpha": 0.01}),
        ("Elu", {"alpha": 1.3}),
        ("Selu", {}),
        ("Celu", {"alpha": 0.3}),
        ("Gelu", {"approximate": "tanh"}),
    ],
)
def test_numbers_of_the_formula_may_be_stored(
    name: str, attributes: dict[str, Any], dtype: str
) -> None:
    """All numbers of 16 bits, so those next to a kink: 0.3 x + 0.4 may be 0 where it is not."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype_of(dtype))
    x = every[np.isfinite(every.astype(np.float32))]
    data = tuple(map(float, x))
    case = Case(OPERATORS[name](**attributes), (Tensor(x.shape, dtype, data=data),))
    grads = (np.ones(x.shape),)
    bars = Bars(case, grads)
    for looser in ("F", "P", "S"):
        assert bars.ratio(looser, False, run(Machine(dtype, looser), case.op, [x])) <= 1
        gradients = run(Machine(dtype, looser), case.op, [x], grads)
        assert bars.ratio(looser, True, gradients) <= 1


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "bfloat16",
        *map(at_night, ("float64", "float16")),
    ],
)
@pytest.mark.parametrize("name", sorted({*FORWARDS, *BACKWARDS}))
def test_any_factoring_lies_within_the_bars(name: str, dtype: str) -> None:
    def factored(case: Case, machine: Any, grads: Arrays) -> Iterator[tuple[bool, Any]]:
        op, arrays = case.op, case.arrays()
        for forward in FORWARDS.get(name, ()):
            variant = partial(_as_tuple, partial(forward, op))
            yield False, run(machine(), variant, arrays)
            run_on = machine()
            gradients = composed(run_on, variant, arrays, grads)
            # the square of a stored 1/s is no number that the reference's own formula has
            finite = all(np.isfinite(g).all() for g in gradients if g is not None)
            if finite and np.divide not in run_on.underflows:
                yield True, gradients
        for backward in BACKWARDS.get(name, ()):
            members = {"backward": lambda op, *args, b=backward: b(op, *args)}
            variant = type(name, (type(op),), members)(**vars(op))
            yield True, run(machine(), variant, arrays, grads)

    @seed(11)
    @few
    @given(cases(OPERATORS[name], dtype))
    def hold(case: Case) -> None:
        first, *others = upstream(case)
        # what flows through statistics that are outputs as well is left out
        joint = name == "SoftmaxCrossEntropyLoss"
        grads = (first, *(g if joint or g is None else np.zeros_like(g) for g in others))
        bars = Bars(case, grads)
        for arithmetic in classes(dtype):
            for choices in EMULATIONS[arithmetic.name][:2]:
                machine = partial(Machine, dtype, arithmetic.name, **choices)
                for gradients, results in factored(case, machine, grads):
                    ratio = bars.ratio(arithmetic.name, gradients, results)
                    assert ratio <= 1, (arithmetic.name, choices, gradients, case)

    hold()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_gradient_of_a_folded_normalisation_lies_within_the_bars(dtype: str) -> None:
    """It takes the mean from the product with x: where x is near the mean, all but little."""
    near = Tensor((2, 4), dtype, ("uniform",))
    others = (Tensor((4,), dtype),) * 3
    inputs = (near, *others, Tensor((4,), dtype, ("positive",)))
    for number in range(200):
        case = Case(OPERATORS["BatchNormalization"](), inputs, number)
        grads = upstream(case)
        bars = Bars(case, grads)
        for name in bars.classes:
            gradients = composed(Machine(dtype, name), case.op, case.arrays(), grads)
            assert bars.ratio(name, True, gradients) <= 1, (name, number)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_windows_give_to_an_element_is_summed_in_any_order(dtype: str) -> None:
    """In the reference's own order all partial sums may be small, and in another they are not."""
    x = np.zeros((1, 1, 3, 3), dtype_of(dtype))
    x[..., 1, 1] = 1  # the maximum of all nine windows
    op = OPERATORS["MaxPool"](kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    rng = np.random.default_rng(0)
    arithmetic = {a.name: a for a in classes(dtype)}.get("P", classes(dtype)[-1])
    for _ in range(20):
        terms = np.array([1, -1, 1, -1, 2**-9, 1, -1, 1, -1]) * rng.uniform(0.8, 1, 9)
        dy = terms.reshape(x.shape).astype(x.dtype)
        bounds = gradient_bounds(op, (x,), (dy, None), arithmetic)
        for order in (np.argsort(terms), np.argsort(-terms), rng.permutation(9)):
            dx = np.zeros_like(x)
            for term in dy.ravel()[order]:
                dx[..., 1, 1] += term
            assert judge(bounds, (dx,)).ratio <= 1


@pytest.mark.parametrize(("off", "right"), [(2.0**-22, True), (2.0**-19, False)])
def test_the_gradient_of_tanh_by_cosh_lies_within_the_bars(off: float, right: bool) -> None:
    x = np.linspace(-0.9, 0.9, 101, dtype=np.float32)
    dy = np.ones_like(x)
    dx = (1 / np.square(np.cosh(x.astype(np.float64)) * (1 + off))).astype(np.float32)
    (single,) = classes("float32")
    bounds = gradient_bounds(OPERATORS["Tanh"](), (x,), (dy,), single)
    assert judge(bounds, (dx,)).right is right


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mish_by_squares_lies_within_the_bars(dtype: str) -> None:
    """As oneDNN computes it, and OpenVINO by it: tanh(ln z) = (z^2 - 1) / (z^2 + 1)."""
    x = np.linspace(-20, 3, 20001).astype(dtype)
    z = np.exp(x) + 1
    y = x * ((z * z - 1) / (z * z + 1))
    (bound,) = forward_bounds(OPERATORS["Mish"](), (x,), classes(dtype)[-1])
    assert bound is not None
    assert judge((bound,), (y,)).right
    assert not judge((bound,), (y + np.abs(x) * 4 * np.finfo(dtype).eps,)).right


def test_softmax_by_powers_of_two_lies_within_the_bars() -> None:
    """In float32, of pairs that are up to 85 apart; with a log2 e that is off it does not."""
    pairs = np.random.default_rng(1).uniform(-85, 0, (200_000, 2)).astype(np.float32)
    (single,) = classes("float32")
    bounds = forward_bounds(OPERATORS["Softmax"](), (pairs,), single)
    for off, right in ((0, True), (1e-6, False)):
        factor = np.float32(np.log2(np.e) * (1 + off))
        e = np.exp2((pairs - pairs.max(-1, keepdims=True)) * factor)
        assert judge(bounds, (e / e.sum(-1, keepdims=True),)).right is right


def test_what_underflows_before_it_is_scaled_lies_within_the_bars() -> None:
    """In float16 x / |x| is subnormal, and then multiplied by dy, as PyTorch does."""
    x = np.geomspace(1e-6, 1, 3019).reshape(1, -1).astype(np.float16)
    norm = np.sqrt(np.square(x.astype(np.float32)).sum(keepdims=True)).astype(np.float16)
    grads = (np.full((1, 1), 19.125, np.float16),)
    arithmetic = {a.name: a for a in classes("float16")}["P"]
    bounds = gradient_bounds(OPERATORS["ReduceL2"](), (x,), grads, arithmetic)
    for dx in ((x / norm) * grads[0], (grads[0] * x) / norm):
        assert judge(bounds, (dx,)).right
    assert not judge(bounds, (dx * np.float16(1.01),)).right


@pytest.mark.parametrize("mode", ["half_pixel", "half_pixel_symmetric", "align_corners"])
def test_a_scale_that_is_rounded_lies_within_the_bars(mode: str) -> None:
    """A scale that follows from sizes is a quotient, as ONNX Runtime has it in float32."""
    f, rng = np.float32, np.random.default_rng(3)

    def stretched(x: Any, scale: Any) -> Any:
        """Each column of x, read at the places of the mode."""
        n = len(x)
        i = np.arange(math.floor(n * scale + f(0.5)), dtype=f)
        middles, width = (i + f(0.5)) / scale - f(0.5), f(n) * scale
        place = {
            "half_pixel": middles,
            "half_pixel_symmetric": f(n / 2) * (1 - f(len(i)) / width) + middles,
            "align_corners": i * (f(n - 1) / (width - 1)),
        }[mode].clip(0, n - 1)
        low = np.floor(place).astype(int)
        weight = (place - low.astype(f))[:, None]
        return x[low] * (1 - weight) + x[np.minimum(low + 1, n - 1)] * weight

    op = OPERATORS["Resize"](
        coordinate_transformation_mode=mode, keep_aspect_ratio_policy="not_larger", mode="linear"
    )
    (single,) = classes("float32")
    for n in (7, 13, 49, 201):
        x = rng.normal(size=(n, 3)).astype(f)
        bounds = forward_bounds(op, (x, None, None, np.array([2 * n, 4])), single)
        scale = f(4) / f(3)
        assert judge(bounds, (stretched(stretched(x, scale).T, scale).T,)).right
        scale *= f(1.0001)
        assert not judge(bounds, (stretched(stretched(x, scale).T, scale).T,)).right


def test_weights_from_the_next_element_lie_within_the_bars() -> None:
    """Results of PaddlePaddle 3.3.1 have the digits of p + 1 - h, where p + 1 is rounded."""
    f, rng = np.float32, np.random.default_rng(5)
    op = OPERATORS["DeformConv"]()
    (single,) = classes("float32")
    for n in (9, 33, 200) * 20:
        x, w = rng.normal(size=(1, 1, 1, n)).astype(f), np.ones((1, 1, 1, 1), f)
        offset = rng.uniform(-2, 2, (1, 2, 1, n)).astype(f)
        offset[:, 0] = 0
        place = np.arange(n, dtype=f) + offset[0, 1, 0]
        low = np.floor(place)
        padded = np.pad(x[0, 0, 0], (3, 3))
        read = [padded[low.astype(int) + 3 + k] for k in (0, 1)]
        y = read[0] * (low + 1 - place) + read[1] * (place + 1 - (low + 1))
        bounds = forward_bounds(op, (x, w, offset), single)
        assert judge(bounds, (y[None, None, None],)).right
        wrong = read[0] * (low + 1 - place) + read[1] * (place - low) * f(1.00001)
        assert not judge(bounds, (wrong[None, None, None],)).right


def _as_tuple(function: Any, *inputs: Any) -> tuple[Any, ...]:
    results = function(*inputs)
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounded_products_of_a_batch_are_class_p_to_a_check(dtype: str) -> None:
    """MLX's gradient of a matrix that serves all leading axes: a sum of rounded products."""

    def backward(op: Operator, grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (a, b) = grads, inputs
        stored = partial(_stored, dtype)
        da, db = stored(dy @ b.swapaxes(-1, -2)), stored(a.swapaxes(-1, -2) @ dy)
        return da, db.sum(0)

    case = Case(OPERATORS["MatMul"](), (Tensor((4, 2, 5), dtype), Tensor((5, 3), dtype)))
    op = type("MatMul", (OPERATORS["MatMul"],), {"backward": backward})()
    worst = Counter[str]()
    for each in range(200):
        drawn = Case(case.op, case.inputs, each)
        grads = upstream(drawn)
        bars, machine = Bars(drawn, grads), Machine(dtype, "F")
        gradients = run(machine, op, drawn.arrays(), grads)
        for name in "FP":
            worst[name] = max(worst[name], bars.ratio(name, True, gradients))
    assert worst["P"] <= 1 < worst["F"]


def _stored(dtype: str, x: Any) -> Any:
    return x.like(Machine(dtype, "P").stored(x.value))


def test_the_element_that_convicts_is_the_one_that_is_told() -> None:
    check, faults = CHECKS["low_precision"], []
    client = Local("sums", LowPrecisionSums())
    for each in range(20):
        case = Case(
            OPERATORS["MatMul"](),
            (Tensor((5, 300), "bfloat16", NARROW), Tensor((300, 7), "bfloat16", NARROW)),
            each,
        )
        with pytest.raises(Fault) as caught:
            check.run(client, case)
        faults.append(caught.value)
    for fault in faults:
        judgement, (expected,) = fault.judgement, fault.evidence.expected
        assert fault.kind == "arithmetic"
        assert "is outside class P, inside class S" in fault.headline
        assert judgement is not None
        assert judgement.ratio > 1
        (result,) = client.run(fault.case.op, list(fault.evidence.feeds), wanted=())
        (bound,), (got,) = expected, result.outputs
        assert ratios(bound, got)[judgement.position] == judgement.ratio
        assert ratios(bound, got).max() == judgement.ratio
        want = copied.Want("bfloat16", bound.value, bound.bar)
        words = copied.difference(got.view(np.uint16), "bfloat16", want)
        assert f"worst at {list(judgement.position)}: {judgement.got!r}" in words


@pytest.mark.parametrize(("factor", "doubted"), [(1.0, False), (1.5, True)])
def test_what_is_far_outside_of_its_class_is_not_excused_by_a_looser_one(
    factor: float, doubted: bool
) -> None:
    def wrong(op: Any, a: Any, b: Any) -> Any:
        return (_summed_in_storage(op, a, b) * np.float32(factor)).astype(a.dtype)

    rows = {"MatMul": Row(wrong, gradient="none")}
    client = Local("sums", type("Made", (Numpy,), {"rows": rows})())
    tensors = Tensor((5, 300), "bfloat16", NARROW), Tensor((300, 7), "bfloat16", NARROW)
    with pytest.raises(Fault, match="is outside class P, inside class S") as caught:
        CHECKS["low_precision"].run(client, Case(OPERATORS["MatMul"](), tensors))
    assert ("rule out a fault first" in caught.value.message) is doubted


def test_a_row_may_grant_class_s() -> None:
    rows = {"MatMul": Row(_summed_in_storage, arithmetic="S", gradient="none")}
    client = Local("sums", type("Made", (Numpy,), {"rows": rows})())
    tensors = Tensor((5, 300), "bfloat16", NARROW), Tensor((300, 7), "bfloat16", NARROW)
    judgement = CHECKS["low_precision"].run(client, Case(OPERATORS["MatMul"](), tensors))
    assert judgement.arithmetic == "S"


def _summed_in_storage(op: Any, a: Any, b: Any) -> Any:
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        total = (total + (a[:, k, None] * b[None, k]).astype(a.dtype)).astype(a.dtype)
    return total


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_that_are_added_before_the_softmax_lie_within_the_bars(dtype: str) -> None:
    """The mean of many losses sends back little, which rounds what comes through log_prob."""
    inputs = (Tensor((1535, 3), dtype), Tensor((1535,), "int64", ("below", 3)))
    stored = Machine(dtype, "P").stored
    for number in range(8):
        case = Case(OPERATORS["SoftmaxCrossEntropyLoss"](), inputs, number)
        dloss, dlog_prob = upstream(case)
        _, labels = case.arrays()
        y = stored(np.asarray(case.op(*case.arrays())[1]))
        dy = dlog_prob.astype(float)
        dy[np.arange(1535), labels] -= stored(dloss.astype(float) / 1535)
        dy = stored(dy)
        dx = dy - stored(stored(np.exp(y)) * stored(dy.sum(1, keepdims=True)))
        assert Bars(case, (dloss, dlog_prob)).ratio("P", True, (stored(dx), None)) <= 1, number


def test_a_convolution_may_begin_with_its_bias() -> None:
    """As oneDNN's does: a bias that is larger than the result is rounded with each partial sum."""
    heavy = ("heavy",)
    inputs = (Tensor((1, 8, 1)), Tensor((4000, 8, 1), values=heavy), Tensor((4000,), values=heavy))
    x, w, b = Case(OPERATORS["Conv"](), inputs).arrays()
    y = b.copy()  # type: ignore[union-attr]
    for k in range(8):
        y += w[:, k, 0] * x[0, k, 0]  # type: ignore[index]
    (arithmetic,) = classes("float32")
    ours = forward_bounds(OPERATORS["Conv"](), (x, w, b), arithmetic)
    assert judge(ours, (y.reshape(1, -1, 1),)).ratio <= 1
    (alone,) = forward_bounds(OPERATORS["Conv"](), (x, w), arithmetic)
    exact = ours[0].value.ravel()
    added_last = np.asarray(alone.bar).ravel() + arithmetic.storage.u * np.abs(exact)
    assert np.max(np.abs(y - exact) / added_last) > 1
