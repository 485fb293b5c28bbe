"""Reverse mode: derived gradients are those of dual numbers and those written by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from d5test.case import Case
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import as_compared, double, exact_bars, gradient_bounds
from d5test.numerics.dual import Dual, derivative, moving
from d5test.numerics.tape import gradients
from d5test.reference.operators import OPERATORS, ReduceLogSumExp, Softmax, Split
from d5test.strategies import cases

(SINGLE,) = classes("float32")
few = settings(
    max_examples=12,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


WIDER = {"Det"}
"""Elimination divides by pivots, whose derivatives are large where these are small; cofactors,
which are written by hand, do not."""


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, op in OPERATORS.items()
        if op.backward is not op.__mro__[-2].backward and not op.typed
    ],
)
def test_derived_gradients_are_those_written_by_hand(name: str) -> None:
    """Where both have bars, they agree within them, and the derived bars are not much wider."""
    wider: list[float] = []

    @seed(5)
    @few
    @given(cases(OPERATORS[name], "float32"))
    def hold(case: Case) -> None:
        arrays = case.arrays()
        with np.errstate(all="ignore"):
            grads = case.upstream(case.op(*double(arrays)))
            written = gradient_bounds(case.op, arrays, grads, SINGLE)
            bars = exact_bars(grads, SINGLE.tied), exact_bars(arrays, SINGLE.tied)
            made = gradients(case.op.forward, *bars)
        for bound, dx in zip(written, made, strict=True):
            if bound is None or dx is None:
                continue
            derived = as_compared(dx, SINGLE)
            assert derived.value.shape == bound.value.shape, case
            both = bound.judged & derived.judged
            apart = np.abs(bound.value - derived.value)
            assert (apart <= bound.bar + derived.bar)[both].all(), case
            shape = bound.value.shape
            one, two = (np.broadcast_to(b.bar, shape)[both] for b in (bound, derived))
            wider.extend((two[one > 0] / one[one > 0]).tolist())

    hold()
    assert not wider or np.median(wider) < 4 or name in WIDER


def _scatter(x: Any, y: Any) -> Any:
    total = np.zeros_like(x, shape=(4,))
    np.add.at(total, np.array([0, 1, 1, 3, 0]), x[:5])
    return total * y[:4]


def _written(x: Any, y: Any) -> Any:
    total = np.zeros_like(x)
    for i in range(len(x)):
        total[i] = x[i] * y[i] if i == 0 else total[i - 1] + x[i] * y[i]
    total[2:4] = y[2:4]
    total *= 2
    return total


def _chosen(x: Any, y: Any) -> Any:
    index = np.argmax(x, axis=0, keepdims=True)
    return np.take_along_axis(y, index, 0) * x


def _put(x: Any, y: Any) -> Any:
    result = x * 2
    np.put_along_axis(result, np.array([1, 3]), y[:2], 0)
    return result


def _logistic(x: Any, y: Any) -> Any:
    e = np.exp(x)
    return y / (1 + np.exp(-x)) + 1 / (1.0 + e) + np.reciprocal(1 + e) + y / (1 + (1 + e)) + e


def _logistic_in_part(x: Any, y: Any) -> Any:
    below = 1 + np.exp(-x)
    below[2:] = y[2:] ** 2
    return y / below


VECTORS: dict[str, Any] = {
    "arithmetic": lambda x, y: x * y / (2 + y * y) - abs(x) ** 1.5,
    "order": lambda x, y: np.maximum(x, y) * np.minimum(x, 0.1) + np.clip(x, -0.5, 0.5),
    "choice": lambda x, y: np.where(x > y, x * x, np.sin(y)) + np.floor(x),
    "sums": lambda x, y: (x - x.mean()) / np.sqrt(x.var() + 1) * y.sum(keepdims=True),
    "extrema": lambda x, y: x.max() * y + np.min(y) * x,
    "products": lambda x, y: x.prod() * y,
    "partial sums": lambda x, y: np.cumsum(x * y) * np.add.accumulate(y),
    "matrices": lambda x, y: x.reshape(2, 3) @ y.reshape(3, 2) + x[:2] @ y.reshape(2, 3)[:, :2],
    "vectors": lambda x, y: np.dot(x, y) * (y.reshape(2, 3) @ x[:3]),
    "tensordot": lambda x, y: np.tensordot(
        x.reshape(1, 2, 3), y.reshape(3, 2, 1), ((2, 1), (0, 1))
    ),
    "einsum": lambda x, y: np.einsum("ij,kj->i", x.reshape(2, 3), y.reshape(2, 3)),
    "implicit einsum": lambda x, y: np.einsum("ij,jk", x.reshape(2, 3), y.reshape(3, 2)),
    "dots": lambda x, y: np.einsum("...j,aj->...a", x.reshape(2, 1, 3), y.reshape(2, 3)),
    "triple": lambda x, y: np.einsum("i,ij,j->", x[:2], (x * y).reshape(2, 3), y[:3]),
    "moves": lambda x, y: np.flip(np.roll(x, 2)).reshape(3, 2).T.ravel() * np.tile(y[:3], 2),
    "repeats": lambda x, y: np.take(x, [0, 0, 5]) * np.repeat(y[:1], 3) + x[[1, 1, 2]],
    "windows": lambda x, y: (sliding_window_view(x, 3) * y[:3]).sum(-1),
    "joined": lambda x, y: np.concatenate([x, y[:2], x * y]) * np.stack([x, y]).sum(),
    "split": lambda x, y: np.split(x, 3)[1] * np.array_split(y, 4)[0],
    "padded": lambda x, y: np.pad(x, (1, 2)) * np.pad(y, (2, 1), "reflect"),
    "sorted": lambda x, y: np.sort(x) * y + np.take_along_axis(y, np.argsort(-x)[:2], 0).sum(),
    "scattered": _scatter,
    "written": _written,
    "chosen": _chosen,
    "put": _put,
    "logistic": _logistic,
    "logistic in part": _logistic_in_part,
    "special": lambda x, y: special.expit(x) * special.erf(y) + special.erfc(x),
    "operator": lambda x, y: Softmax(axis=0)(x * y)[0] * x,
    "several outputs": lambda x, y: (lambda a, b: a * y[:2] + b[1] * 3)(
        *Split(num_outputs=3)(x)[::2]
    ),
    "operator twice": lambda x, y: ReduceLogSumExp()(ReduceLogSumExp(keepdims=0)(x)[0] * y)[0],
}  # fmt: skip


def _data() -> tuple[Any, ...]:
    rng = np.random.default_rng(7)
    return tuple(rng.normal(size=6) for _ in range(2)), tuple(rng.normal(size=6) for _ in range(2))


@pytest.mark.parametrize("name", VECTORS)
def test_reverse_mode_is_the_adjoint_of_forward_mode(name: str) -> None:
    """<dy, J t> = <J' dy, t>: both are derived, by rules that share nothing but the primitives."""
    (x, y), direction = _data()
    function = VECTORS[name]
    rise = derivative(function(*moving((x, y), direction)))
    dy = np.random.default_rng(8).normal(size=np.shape(rise))
    dx = gradients(function, (dy,), (x, y))
    assert [d.shape for d in dx] == [x.shape, y.shape]
    fall = sum(float(np.sum(d * t)) for d, t in zip(dx, direction, strict=True))
    assert fall == pytest.approx(float(np.sum(dy * rise)), rel=1e-12)


def test_a_gradient_is_differentiated_again() -> None:
    """The second derivative of Gelu: by reverse over reverse, and by forward over reverse."""

    def gelu(x: Any) -> Any:
        return x * 0.5 * (1 + special.erf(x / np.sqrt(2)))

    def slope(x: Any) -> Any:
        return gradients(gelu, (np.ones(()),), (x,))[0]

    x = np.linspace(-3, 3, 7)
    expected = (2 - x * x) * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    (twice,) = gradients(lambda x: slope(x) * 1.0, (np.ones(7),), (x,))
    assert twice == pytest.approx(expected, abs=1e-15)
    assert derivative(slope(Dual(x, np.ones(7)))) == pytest.approx(expected, abs=1e-15)


def test_either_form_of_a_logistic_slope_lies_within_the_bars() -> None:
    x = np.linspace(-30, 30, 61, dtype=np.float32)
    bars = exact_bars((np.ones_like(x),), SINGLE), exact_bars((x,), SINGLE)
    (dx,) = gradients(lambda x: x / (1 + np.exp(-x)), *bars)
    bound = as_compared(dx, SINGLE)
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(-x))
        e = np.exp(-x)
        one, other = s * (1 + x * (1 - s)), s + x * e / ((1 + e) * (1 + e))
    for slope, right in ((one, True), (other, True), (one * np.float32(1 + 1e-5), False)):
        assert (np.abs(slope - bound.value) <= bound.bar).all() is np.bool_(right)


def test_the_zeros_of_a_triangle_are_no_element() -> None:
    dy = np.arange(2.0, 8).reshape(2, 3)
    for function in (np.tril, np.triu):
        (dx,) = gradients(function, (dy,), (np.ones((2, 3)),))
        np.testing.assert_array_equal(dx, function(dy))


def test_an_input_that_changes_nothing_has_a_gradient_of_zeros() -> None:
    inputs = np.ones(3), np.array([0, 2]), np.ones(4)
    dx, of_index, dy = gradients(lambda x, i, y: x[i], (np.ones(2),), inputs)
    assert (dx.tolist(), of_index, dy.tolist()) == ([1, 0, 1], None, [0, 0, 0, 0])


@pytest.mark.parametrize(
    "lift", [lambda x: Dual(x, np.ones(3)), lambda x: exact_bars((x,), SINGLE)[0]]
)
def test_what_is_written_to_a_result_leaves_its_argument_alone(lift: Any) -> None:
    x = lift(np.arange(3.0)) * 0.3
    before = x.companion.copy()
    for y in (-x, abs(x), +x, np.maximum(x, 0.1), x + 0.0):
        y[...] = 5.0
    assert x.companion.tolist() == before.tolist()
    assert x.value.tolist() == [0.0, 0.3, 0.6]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.__iadd__(1.0),
        lambda x: (x * 2)[1:].__setitem__(0, 1.0),
        lambda x: np.add.at(x.reshape(3, 2), 0, 1.0),
    ],
)
def test_what_would_be_written_elsewhere_is_refused(function: Any) -> None:
    """NumPy writes through a view, and changes its caller's data; a tape would not see it."""
    with pytest.raises(TypeError, match=r"may not write into its input or into a part"):
        gradients(function, (np.ones(6),), (np.ones(6),))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (np.median, "numpy.median"),
        (lambda x: np.einsum("ii->i", x.reshape(2, 2)), "use diagonal"),
        (lambda x: np.dot(x, np.ones((2, 4, 2))), "use numpy.einsum"),
        (np.cbrt, "cbrt"),
    ],
)
def test_what_has_no_rule_says_so(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        gradients(function, (np.ones(4),), (np.ones(4),))
