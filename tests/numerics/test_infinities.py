"""What is certain at an infinity is demanded, and what depends on the formula is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from d5test.case import Case, Operator, Tensor
from d5test.checks import CHECKS, Fault
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import forward_bounds
from d5test.reference.operators import OPERATORS
from tests.faults.judging import judgements
from tests.faults.score import Local, with_row

Forward = Callable[..., Any]
COUNT = 12
INF = np.inf
LARGEST = np.finfo(np.float32).max


def implemented(name: str, forward: Forward) -> tuple[Local, type[Operator]]:
    """NumPy with another `forward(op, *inputs)` of the operator."""
    operator = OPERATORS[name]
    return with_row(operator, type(name, (operator,), {"forward": forward})), operator


def bars(name: str, *arrays: Any, dtype: str = "float32", flushes: bool = False) -> Any:
    """Value and bar of each element, in the loosest class."""
    arithmetic = classes(dtype, flushes=flushes)[-1]
    inputs = [x if isinstance(x, np.ndarray) else np.asarray(x, np.float32) for x in arrays]
    bound = forward_bounds(OPERATORS[name](), inputs, arithmetic)[0]
    assert bound is not None
    return bound.value, np.broadcast_to(bound.bar, bound.value.shape)


def plain_softmax(op: Any, x: Any) -> Any:
    e = np.exp(x.astype(np.float64))
    return (e / e.sum(op.axis, keepdims=True)).astype(x.dtype)


def softmax_of_difference(op: Any, x: Any) -> Any:
    m = x.max(op.axis, keepdims=True)
    return np.exp(x - (m + np.log(np.exp(x - m).sum(op.axis, keepdims=True))))


def rounded_infinity(op: Any, x: Any) -> Any:
    return np.minimum(super(type(op), op).forward(x), LARGEST)


def plain_logsumexp(op: Any, x: Any, axes: Any = None) -> Any:
    along = op.reduced(x, axes)
    if not along:
        return x.copy()
    e = np.exp(x.astype(np.float64)).sum(along, keepdims=bool(op.keepdims))
    return np.log(e).astype(x.dtype)


def unguarded_logsumexp(op: Any, x: Any, axes: Any = None) -> Any:
    along = op.reduced(x, axes)
    if not along:
        return x.copy()
    m = np.max(x, axis=along, keepdims=True, initial=-INF)
    y = m + np.log(np.exp(x - m).sum(along, keepdims=True))
    return y if op.keepdims else y.squeeze(along)


HONEST: tuple[tuple[str, Forward], ...] = (
    ("Softmax", softmax_of_difference),
    ("Sigmoid", lambda op, x: expit(x)),
    ("Sigmoid", lambda op, x: (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)),
    ("Softplus", lambda op, x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    ("Softplus", lambda op, x: np.logaddexp(x, np.float32(0))),
    ("Gelu", lambda op, x: np.where(x == -INF, np.float32(0), super(type(op), op).forward(x))),
    ("Div", lambda op, x, y: x * (1 / y)),
    ("ReduceSum", lambda op, x, axes=None: _from_behind(op, x, axes)),
    ("MatMul", lambda op, a, b: np.matmul(a[..., ::-1], np.flip(b, -2 if b.ndim > 1 else -1))),
)


NAIVE: tuple[tuple[str, Forward], ...] = (
    ("Softmax", plain_softmax),
    ("LogSoftmax", lambda op, x: np.log(plain_softmax(op, x.astype(np.float64))).astype(x.dtype)),
    ("ReduceLogSumExp", plain_logsumexp),
)
"""Right where e^x neither overflows nor is lost."""


def _from_behind(op: Any, x: Any, axes: Any) -> Any:
    return super(type(op), op).forward(np.flip(x, op.reduced(x, axes)), axes)


PLANTED: tuple[tuple[str, Forward, str], ...] = (
    ("Softmax", lambda op, x: np.where(
        np.isinf(x).any(op.axis, keepdims=True), np.nan, super(type(op), op).forward(x)
    ), "special"),
    ("Softmax", lambda op, x: np.where(x == -INF, 1e-7, super(type(op), op).forward(x)),
     "special"),
    ("LogSoftmax", lambda op, x: np.maximum(super(type(op), op).forward(x), -LARGEST), "special"),
    ("ReduceLogSumExp", unguarded_logsumexp, "special"),
    ("ReduceLogSumExp", lambda op, x, axes=None: _instead(op, x, axes, 0.0), "degenerate"),
    ("ReduceLogSumExp", lambda op, x, axes=None: _instead(op, x, axes, np.nan), "degenerate"),
    ("ReduceMax", lambda op, x, axes=None: _instead(op, x, axes, 0.0), "degenerate"),
    ("ReduceMax", lambda op, x, axes=None: _instead(op, x, axes, -LARGEST), "degenerate"),
    ("ReduceMax", lambda op, x, axes=None: _instead(op, x, axes, -LARGEST), "special"),
    ("ReduceSum", lambda op, x, axes=None: np.minimum(
        super(type(op), op).forward(x, axes), LARGEST), "special"),
    ("Relu", rounded_infinity, "special"),
    ("Tanh", lambda op, x: np.where(np.isinf(x), np.nan, np.tanh(x)), "special"),
    ("Sigmoid", lambda op, x: np.exp(x) / (1 + np.exp(x)), "special"),
    ("Exp", lambda op, x: np.exp(np.clip(x, -LARGEST, 88.72)), "special"),
    ("Log", lambda op, x: np.log(np.minimum(x, LARGEST)), "special"),
    ("MatMul", lambda op, a, b: np.nan_to_num(
        np.matmul(a, b), nan=np.nan, posinf=LARGEST, neginf=-LARGEST), "special"),
    ("AveragePool", rounded_infinity, "special"),
)  # fmt: skip
"""An operator, what is wrong with it, and the check that finds it."""


def _instead(op: Any, x: Any, axes: Any, of_minus_infinity: float) -> Any:
    y = super(type(op), op).forward(x, axes)
    return np.where(y == -INF, of_minus_infinity, y).astype(x.dtype)


@pytest.mark.parametrize(("name", "forward"), HONEST)
def test_honest_formulas_are_never_accused(name: str, forward: Forward) -> None:
    client, operator = implemented(name, forward)
    for check in ("special", "degenerate"):
        answers = list(judgements(client, operator, CHECKS[check], "float32", COUNT))
        assert answers
        assert all(answer.right for answer in answers)


@pytest.mark.parametrize(("name", "forward"), NAIVE)
def test_nor_are_those_without_a_shift(name: str, forward: Forward) -> None:
    client, operator = implemented(name, forward)
    for seed in range(2 * COUNT):
        case = Case(operator(), (Tensor((2 + seed % 3, 5)),), seed=seed)
        assert CHECKS["special"].run(client, case).right


@pytest.mark.parametrize(("name", "forward", "check"), PLANTED)
def test_what_is_wrong_at_an_infinity_is_found(name: str, forward: Forward, check: str) -> None:
    client, operator = implemented(name, forward)
    with pytest.raises(Fault):
        list(judgements(client, operator, CHECKS[check], "float32", 2 * COUNT))


@pytest.mark.parametrize("flushes", [False, True])
def test_nothing_is_paid_at_an_infinity(flushes: bool) -> None:
    nothing = np.zeros((0,), np.float32)
    for name, given, want in (
        ("Exp", ([INF, -INF],), [INF, 0]),
        ("Log", ([0, INF],), [-INF, INF]),
        ("Reciprocal", ([INF, -INF, 0],), [0, 0, INF]),
        ("Div", ([1, -1, INF], [INF, 0, -2]), [0, -INF, -INF]),
        ("Sigmoid", ([-INF],), [0]),
        ("Softplus", ([INF],), [INF]),
        ("Relu", ([INF, -INF],), [INF, 0]),
        ("Sum", ([INF, 1], [2, -3], [4, -INF]), [INF, -INF]),
        ("CumSum", ([1, INF, -3], np.asarray(0)), [1, INF, INF]),
        ("ReduceLogSumExp", ([-INF, -INF],), [-INF]),
        ("ReduceLogSumExp", ([1, INF],), [INF]),
        ("ReduceLogSumExp", (nothing,), [-INF]),
        ("ReduceMax", (nothing,), [-INF]),
        ("ReduceMin", (nothing,), [INF]),
        ("ReduceL1", ([1, -INF, 3],), [INF]),
        ("ReduceLogSum", (nothing,), [-INF]),
        ("Asinh", ([INF, -INF],), [INF, -INF]),
        ("Cosh", ([INF, -INF],), [INF, INF]),
        ("ReduceMean", ([1, -INF, 3],), [-INF]),
        ("MatMul", ([INF, 2], [-1, 3]), -INF),
    ):
        for dtype in ("float32", "float16"):
            value, bar = bars(name, *given, dtype=dtype, flushes=flushes)
            np.testing.assert_array_equal(value, want, name)
            if name != "CumSum":
                assert not bar.any(), name
            assert np.all(bar[np.isinf(value)] == 0), name


def test_of_a_row_with_minus_infinity_the_rest_is_as_without() -> None:
    value, bar = bars("Softmax", [-INF, 1, 2])
    without, plain = bars("Softmax", [1, 2])
    assert (value[0], bar[0]) == (0, 0)
    np.testing.assert_allclose(value[1:], without, rtol=1e-15)
    assert np.all(bar[1:] < 2 * plain)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ReduceSum", ([INF, -INF],)),
        ("ReduceSum", ([INF, -3e38, -3e38],)),  # those two overflow the other way if added first
        ("MatMul", ([INF, 1], [0, 1])),
        ("Mul", ([INF], [0])),
        ("Gelu", ([-INF],)),
        ("Softmax", ([-INF, -INF],)),
        ("Softmax", ([INF, 1],)),
    ],
)
def test_what_depends_on_the_formula_is_open(name: str, given: tuple[Any, ...]) -> None:
    value, bar = bars(name, *given)
    assert not np.any(np.isfinite(bar) & ~np.isnan(value))


def test_a_factor_that_is_read_as_zero_leaves_it_open() -> None:
    for name, given in (("Mul", ([INF], [1e-40])), ("MatMul", ([INF, 1], [1e-40, 1]))):
        assert bars(name, *given)[1] == 0
        assert bars(name, *given, flushes=True)[1] == INF


def test_an_overflow_is_no_infinity() -> None:
    """exp(800) overflows in the reference too: nothing says that it is exactly infinite."""
    value, bar = bars("Exp", np.array([800.0, 709.0]), dtype="float64")
    assert (value[0], bar[0]) == (INF, INF)
    assert 0 < bar[1] < INF


def test_a_case_without_a_bound_is_open() -> None:
    """Of an absent bound ONNX says that it is the largest number, frameworks that it is none."""
    client, _ = implemented("Clip", lambda op, x, *bounds: np.clip(x, -LARGEST, LARGEST))
    case = Case(OPERATORS["Clip"](), (Tensor((3,)),))
    assert CHECKS["special"].run(client, case).right


def test_a_gate_that_an_infinity_leaves_at_one_is_computed_all_the_same() -> None:
    """h' is h before and after, but g + z (h - g) rounds h - g, and g is 1 after."""

    class Other(OPERATORS["GRU"]):
        def cell(self, a, states, run):
            (h,) = states
            _, (z, r, g, u) = super().cell(a, states, run)
            return (g + z * (h - g),), (z, r, g, u)

    weights = Tensor((1, 195, 2)), Tensor((1, 195, 65)), Tensor((1, 390))
    state = Tensor((1, 65, 65), values=("heavy",))
    op = OPERATORS["GRU"](hidden_size=65, linear_before_reset=1)
    case = Case(op, (Tensor((3, 65, 2)), *weights, None, state), seed=465873618)
    assert CHECKS["special"].run(with_row(OPERATORS["GRU"], Other), case).right


def test_a_c_that_is_multiplied_by_zero_need_not_be_read() -> None:
    def unread(op: Any, a: Any, b: Any, c: Any = None) -> Any:
        return super(type(op), op).forward(a, b, c if op.beta else None)

    client, operator = implemented("Gemm", unread)
    tensors = Tensor((2, 3)), Tensor((3, 4)), Tensor((2, 4))
    for seed in range(COUNT):
        assert CHECKS["special"].run(client, Case(operator(beta=0.0), tensors, seed)).right


def test_a_zero_that_is_taken_for_the_default_is_found() -> None:
    def default(op: Any, a: Any, b: Any, c: Any = None) -> Any:
        other = op.with_(beta=op.beta or 1.0)
        return super(type(op), other).forward(a, b, c)

    client, operator = implemented("Gemm", default)
    with pytest.raises(Fault, match="the result is wrong"):
        list(judgements(client, operator, CHECKS["forward"], "float32", 25))


@pytest.mark.parametrize(
    ("dtype", "equation", "known"),
    [
        ("float16", "ij,jk,kl->il", [False, True]),
        ("float32", "ij,jk,kl->il", [True, True]),
        ("float16", "ij,jk,klm->il", [False, False]),
    ],
)
def test_no_number_is_demanded_where_a_product_of_some_factors_overflows(
    dtype: str, equation: str, known: list[bool]
) -> None:
    """2^-10 (2^8 2^8) is 2^6, and infinite in float16 if it is computed in this order."""
    arithmetic = classes(dtype, flushes=False)[-1]
    last = np.array([[256.0, 1.0]]) if equation.endswith("kl->il") else np.full((1, 2, 512), 1.0)
    factors = [np.array([[2.0**-10]]), np.array([[256.0]]), last]
    inputs = [x.astype(dtype) for x in factors]
    bound = forward_bounds(OPERATORS["Einsum"](equation=equation), inputs, arithmetic)[0]
    assert bound is not None
    assert np.isfinite(np.broadcast_to(bound.bar, (1, 2)))[0].tolist() == known
