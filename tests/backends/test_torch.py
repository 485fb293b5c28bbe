"""The rows of the PyTorch backend, called by hand.

Expected values come from `onnx.reference` or from NumPy; gradients answer to `gradcheck`.
"""

from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from tests.backends.torch_calls import (
    CALLS,
    IDS,
    SEQUENCE,
    Torch,
    X,
    attributes,
    ints,
    normal,
    onnx_says,
    put,
    run,
)

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("name", "inputs", "given"), CALLS, ids=IDS)
def test_row_agrees_with_onnx(name: str, inputs: Any, given: Any) -> None:
    got = run(name, *inputs, **given)
    want = onnx_says(name, *inputs, outputs=len(got), **given)
    for y, expected in zip(got, want, strict=True):
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "inputs", "given"), CALLS, ids=IDS)
def test_row_is_differentiable_throughout(name: str, inputs: Any, given: Any) -> None:
    op, tensors = attributes(name, **given), [put(x) for x in inputs]
    wanted = [
        i
        for i, x in enumerate(tensors)
        if x is not None and x.is_floating_point() and i not in Torch.rows[name].stopped
    ]
    if "Loss" in name:
        wanted = wanted[:1]

    def function(*floats: Any) -> Any:
        given = dict(zip(wanted, floats, strict=True))
        return Torch.rows[name].call(op, *(given.get(i, x) for i, x in enumerate(tensors)))

    leaves = [tensors[i].clone().requires_grad_() for i in wanted]
    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


def test_dropout_scales_what_its_mask_keeps() -> None:
    x, mask = normal(3, 5), normal(5, 3).T > 0
    (y,) = run("Dropout", x, np.array(0.2), mask)
    np.testing.assert_allclose(y, x * mask / 0.8, rtol=1e-15)
    (y,) = run("Dropout", x, np.array(0.2))
    np.testing.assert_array_equal(y, x)


def test_dropout_draws_a_mask() -> None:
    x, train = normal(30, 50), np.array(True)
    (y,) = run("Dropout", x, np.array(0.0), train)
    np.testing.assert_array_equal(y, x)
    (y,) = run("Dropout", x, np.array(0.5), train)
    np.testing.assert_array_equal(y, np.where(y == 0, 0, 2 * x))
    assert 0 < np.count_nonzero(y) < y.size


def test_rnn_with_relu() -> None:
    w, r, h = normal(1, 4, 2), normal(1, 4, 4), np.zeros((3, 4))
    y, last = run("RNN", SEQUENCE, w, r, activations=("Relu",), hidden_size=4)
    for x, y_t in zip(SEQUENCE, y, strict=True):
        h = np.maximum(x @ w[0].T + h @ r[0].T, 0)
        np.testing.assert_allclose(y_t[0], h)
    np.testing.assert_array_equal(last, y[-1])


def test_recurrence_with_the_batch_first() -> None:
    weights = normal(2, 16, 2), normal(2, 16, 4), normal(2, 32)
    states = normal(2, 3, 4), normal(2, 3, 4) + 1
    given = {"hidden_size": 4, "direction": "bidirectional"}
    y, *last = run("LSTM", SEQUENCE, *weights, None, *states, **given)
    swapped = [np.swapaxes(x, 0, 1) for x in (SEQUENCE, *states)]
    z, *end = run("LSTM", swapped[0], *weights, None, *swapped[1:], layout=1, **given)
    np.testing.assert_allclose(z, y.transpose(2, 0, 1, 3), rtol=1e-12)
    for one, other in zip(last, end, strict=True):
        np.testing.assert_allclose(one, other.transpose(1, 0, 2), rtol=1e-12)


def test_split_by_sizes_and_by_number() -> None:
    x = normal(7, 3)
    for ys, ends in (
        (run("Split", x, ints(2, 0, 5)), (2, 2)),
        (run("Split", x, num_outputs=3), (3, 6)),
    ):
        for y, want in zip(ys, np.split(x, ends), strict=True):
            np.testing.assert_array_equal(y, want)


def test_pad_cuts_where_pads_are_negative() -> None:
    for mode, numpy in (("constant", "constant"), ("edge", "edge")):
        (y,) = run("Pad", normal(3, 5), ints(-1, 2, 1, -3), mode=mode)
        want = np.pad(normal(3, 5)[1:], ((0, 1), (2, 0)), numpy)[:, :-3]
        np.testing.assert_array_equal(y, want)


def test_slice_clamps_a_negative_start_to_the_first_element() -> None:
    (y,) = run("Slice", normal(5), ints(-9), ints(-99), ints(0), ints(-1))
    np.testing.assert_array_equal(y, normal(5)[:1])


def test_convolution_transposed_reaches_beyond_its_natural_size() -> None:
    x, w, b = normal(1, 1, 2), normal(1, 1, 3), normal(1)
    (y,) = run("ConvTranspose", x, w, b, output_shape=(6,))
    np.testing.assert_allclose(y[0, 0], np.pad(np.convolve(x[0, 0], w[0, 0]), (0, 2)) + b)


def test_convolution_transposed_may_lose_all_but_what_is_added_behind() -> None:
    x, w, b = normal(1, 1, 1), normal(1, 1, 1), normal(1)
    (y,) = run("ConvTranspose", x, w, b, strides=(7,), output_padding=(6,), output_shape=(4,))
    np.testing.assert_allclose(y[0, 0], [b[0]] * 4)  # the product stands before what is kept


@pytest.mark.parametrize(
    ("name", "inputs", "given"),
    [
        ("GRU", (SEQUENCE, normal(1, 12, 2), normal(1, 12, 4)), {"clip": 1.0}),
        ("RNN", (SEQUENCE, normal(1, 4, 2), normal(1, 4, 4), None, ints(1, 2, 3)), {}),
        ("LSTM", (SEQUENCE, normal(1, 16, 2), normal(1, 16, 4)), {"input_forget": 1}),
        ("Attention", (X, X, X), {"softcap": 2.0}),
        ("BatchNormalization", (normal(1, 4), *[normal(4)] * 4), {"training_mode": 1}),
        ("Conv", (normal(1, 1, 2, 3, 2, 3), normal(1, 1, 1, 1, 1, 1)), {}),
    ],
)
def test_what_torch_cannot_is_refused(name: str, inputs: Any, given: Any) -> None:
    with pytest.raises(Unsupported, match=r"torch|F\."):
        run(name, *inputs, **given)
