"""What is added to a sum of products may go on in its accumulator: no such chain is accused.

Where one product is small beside the other, or beside a bias, each of its terms is rounded at the
size of what is much larger. The product alone would pay for none of it.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from d5test.case import dtype_of
from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.numerics.bounds import double, forward_bounds, gradient_bounds
from d5test.numerics.ensemble import ensemble_bounds, norm_ratio
from d5test.numerics.judgement import judge
from d5test.reference.operators import OPERATORS
from tests.numerics.emulated import Machine, composed, run
from tests.numerics.factorings import in_one_sum

(SINGLE,) = classes("float32")
TANH, RELU = ({"activations": (name, name)} for name in ("Tanh", "Relu"))
LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", TANH),
    ("RNN", RELU),
    ("LSTM", {}),
    ("GRU", {}),
    ("GRU", {"linear_before_reset": 1}),
]


def normal(*shape: int, size: float = 1.0, seed: int = 0, dtype: str = "float32") -> Any:
    numbers = size * np.random.default_rng([seed, *shape]).standard_normal(shape)
    return numbers.astype(dtype_of(dtype))


def layer(name: str, attributes: Any, t: int, n: int, h: int, size: float, dtype: str) -> Any:
    """A layer of one feature and of R that is small, if `size` is: the operator, x, w and r."""
    op: Any = OPERATORS[name](hidden_size=h, **attributes)
    x, w = normal(t, n, 1, dtype=dtype), normal(1, op.gates * h, 1, dtype=dtype)
    return op, (x, w, normal(1, op.gates * h, h, size=size / h**0.5, dtype=dtype))


def shapes_of(op: Any, inputs: Any) -> Any:
    return [np.shape(y) for y in op(*double(inputs))]


def added(total: Any, a: Any, b: Any) -> Any:
    """total + a b, one term after the other."""
    total = total.copy()
    for k in range(a.shape[-1]):
        total += a[..., k, None] * b[k]
    return total


@pytest.mark.parametrize("size", [1, 2.0**-6, 2.0**-12])
@pytest.mark.parametrize("h", [33, 129, 257])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "attributes"), LAYERS)
def test_a_layer_may_collect_its_products_in_one_sum(
    name: str, attributes: Any, dtype: str, h: int, size: float
) -> None:
    op, inputs = layer(name, attributes, 2, 16 if name == "RNN" else 4, h, size, dtype)
    for arithmetic in classes(dtype):
        machine = Machine(dtype, arithmetic.name)
        results = run(machine, partial(in_one_sum, op), inputs)
        assert judge(forward_bounds(op, inputs, arithmetic), results).ratio <= 1


def test_all_roundings_may_go_one_way() -> None:
    """Each term is a little more than half an ULP of what it is added to."""
    h, one = 257, np.ones((1, 1, 1), np.float32)
    w, r = np.ones((1, h, 1), np.float32), np.full((1, h, h), 1.01 * 2.0**-24, np.float32)
    before = np.ones((1, 1, h), np.float32)
    op = OPERATORS["RNN"](hidden_size=h, **RELU)
    inputs = one, w, r, None, None, before
    (y, _) = bounds = forward_bounds(op, inputs, SINGLE)
    result = added(np.ones((1, h), np.float32), before[0], r[0].T)
    assert np.all(result == 1 + h * 2.0**-23)
    ratio = judge(bounds, (np.broadcast_to(result, y.value.shape), None)).ratio
    assert 0.4 < ratio <= 1


@pytest.mark.parametrize("size", [1, 2.0**-6, 2.0**-12])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "attributes"), LAYERS)
def test_so_may_one_that_is_differentiated(
    name: str, attributes: Any, dtype: str, size: float
) -> None:
    op, inputs = layer(name, attributes, 2, 1, 33, size, dtype)
    grads = tuple(normal(*shape, seed=1, dtype=dtype) for shape in shapes_of(op, inputs))
    for arithmetic in classes(dtype):
        machine = Machine(dtype, arithmetic.name)
        results = composed(machine, partial(in_one_sum, op), inputs, grads)
        assert judge(gradient_bounds(op, inputs, grads, arithmetic), results).ratio <= 1


@pytest.mark.parametrize("h", [33, 129, 257])
@pytest.mark.parametrize("size", [1, 2.0**-6, 2.0**-12])
def test_the_gradient_of_a_state_may_begin_with_that_of_the_output(size: float, h: int) -> None:
    op, (x, w, r) = layer("RNN", TANH, 2, 1, h, size, "float32")
    dy, last = normal(2, 1, 1, h, seed=1), np.zeros((1, 1, h), np.float32)
    (y, _) = op(x, w, r)
    slopes = 1 - y[:, 0] * y[:, 0]
    da = slopes * dy[:, 0]
    da[0] = slopes[0] * added(dy[0, 0], da[1], r[0])
    dw = np.einsum("tnh,tni->hi", da, x)[None]
    bounds = gradient_bounds(op, (x, w, r), (dy, last), SINGLE)
    assert judge(bounds, (added(np.zeros_like(x), da, w[0]), dw, None)).ratio <= 1


@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("name", ["Conv", "ConvTranspose"])
def test_a_convolution_may_begin_with_its_bias(name: str, taps: int) -> None:
    """As XNNPACK's does, of either kind."""
    c, m, n = 33, 257, 9
    x, b = normal(1, c, n), normal(m)
    transposed = name == "ConvTranspose"
    w = normal(*((c, m) if transposed else (m, c)), taps, size=2.0**-8)
    filters = w.swapaxes(0, 1) if transposed else w
    y = np.zeros((m, n + taps - 1 if transposed else n - taps + 1), np.float32) + b[:, None]
    for k in range(taps):
        part = y[:, k : k + n] if transposed else y
        seen = x[0] if transposed else x[0, :, k : k + y.shape[1]]
        part[...] = added(part, filters[:, :, k], seen)
    assert judge(forward_bounds(OPERATORS[name](), (x, w, b), SINGLE), (y[None],)).ratio <= 1


def test_scores_may_begin_with_the_mask() -> None:
    n, d = 17, 64
    q, k = (normal(1, 1, n, d, size=2.0**-6, seed=s) for s in (1, 2))
    v, mask = normal(1, 1, n, d), normal(n, n, size=64)
    y = softmax(added(mask, q[0, 0], k[0, 0].T).astype(float), -1) @ v[0, 0]
    bounds = forward_bounds(OPERATORS["Attention"](scale=1.0), (q, k, v, mask), SINGLE)
    assert judge(bounds, (y[None, None].astype(np.float32),)).ratio <= 1


@pytest.mark.parametrize(("size", "bias"), [(2.0**-12, 0), (2.0**-6, 0), (2.0**-6, 1), (1, 1)])
def test_long_layers_stray_as_one_sum_does(size: float, bias: float) -> None:
    """Those are judged by the ensemble."""
    t, n, h = 17, 2, 257
    op, (x, w, r) = layer("RNN", RELU, t, n, h, size, "float32")
    b = bias * normal(1, 2 * h)
    state, y = np.zeros((n, h), np.float32), np.empty((t, n, h), np.float32)
    for each in range(t):
        first = np.zeros((n, h), np.float32) + b[0, :h] + b[0, h:]
        state = y[each] = np.maximum(added(added(first, x[each], w[0].T), state, r[0].T), 0)
    bounds = ensemble_bounds(op, (x, w, r, b), None, SINGLE)[:1]
    assert judge(bounds, (y[:, None],)).ratio <= 1
    assert norm_ratio(bounds, (y[:, None],)) <= 1


# what a chain is


def bar(x: Any) -> Bar:
    return Bar(np.asarray(x, float), arithmetic=SINGLE)


def product() -> Bar:
    """(3, 4), of two terms."""
    result: Bar = bar(normal(3, 2)) @ normal(2, 4)
    return result


def test_a_chain_pays_for_each_term_at_the_size_of_all() -> None:
    a, b, c = normal(3, 5), normal(5, 4), normal(4)
    begun = np.concatenate([a, np.ones((3, 1))], 1), np.concatenate([b, c[None]])
    apart, whole = bar(a) @ b + c, bar(begun[0]) @ begun[1]
    # c itself is added in five roundings, and as a product with 1 would be one of six
    assert np.all(apart.companion >= whole.companion - SINGLE.u * np.absolute(c))
    assert np.all(apart.companion <= whole.companion * 1.5)


def test_movements_keep_a_chain() -> None:
    x = product()
    moved = [
        x[1:], x.T, x.reshape(2, 6), np.split(x, 2, 1)[1], np.moveaxis(x, 0, 1),
        np.where(np.eye(3, 4) > 0, x, 0.0), np.where(np.eye(3, 4) > 0, 1.0, x),
    ]  # fmt: skip
    for y in moved:
        assert y.chain.terms == 2
        assert y.chain.size.shape == y.shape
    assert (x + product()).chain.terms == 4
    assert (1.0 - x).chain.terms == 3
    for y in (x * 2.0, np.maximum(x, 0.0), np.tanh(x), bar(1.0) + 1.0):
        assert y.chain is None


def test_what_is_written_to_keeps_the_longest_chain() -> None:
    y = bar(np.ones((2, 3, 4)))
    y[1] = product()
    assert y.chain is not None
    assert y.chain.terms == 2
    assert np.array_equal(y.chain.size, np.absolute(y.value))
    assert np.add.accumulate(y)[-1].chain.terms == 4


def test_an_infinite_addend_is_exact_and_spreads_nowhere() -> None:
    (infinite,) = OPERATORS["Gemm"]()(np.ones((3, 2)), np.ones((2, 4)), np.diag([np.inf] * 4)[:3])
    assert np.array_equal(np.isinf(infinite), np.eye(3, 4) > 0)
    assert np.all(infinite[~np.isinf(infinite)] == 2)
    c = np.diag([np.inf, -np.inf, 1, 1])[:3].astype(np.float32)
    arrays = np.ones((3, 2), np.float32), np.ones((2, 4), np.float32), c
    (bound,) = forward_bounds(OPERATORS["Gemm"](), arrays, SINGLE)
    assert bound is not None
    assert bound.judged.all()
    assert np.all(bound.bar[np.isinf(bound.value)] == 0)
