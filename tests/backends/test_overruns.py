"""No call is asked in which oneDNN writes into memory of others: docs/found.md shows them."""

from functools import partial
from typing import Any

import pytest

from d5test.backends.base import Unsupported
from d5test.reference.operators import OPERATORS


@pytest.mark.parametrize(
    ("channels", "kernel", "strides", "dtype", "refused"),
    [
        (2, 1, 2, "bfloat16", True),
        (15, 1, 3, "bfloat16", True),
        (16, 1, 2, "bfloat16", False),
        (2, 1, 1, "bfloat16", False),
        (2, 2, 2, "bfloat16", False),
        (8, 1, 2, "float32", True),
        (2, 1, 2, "float64", False),
    ],
)
@pytest.mark.parametrize(
    ("framework", "function"),
    [("torch", "conv"), ("tensorflow", "conv"), ("tensorflow", "conv_transpose")],
)
def test_strided_pointwise_convolutions_of_few_channels_are_not_asked(
    framework: str,
    function: str,
    channels: int,
    kernel: int,
    strides: int,
    dtype: str,
    refused: bool,
) -> None:
    pytest.importorskip(framework)
    inputs: Any
    if framework == "torch":
        import torch

        from d5test.backends.torch.forms.windows import conv_last, in_channels_last

        plan = partial(conv_last, in_channels_last)
        ones = partial(torch.ones, dtype=getattr(torch, dtype))
    else:
        import tensorflow as tf

        from d5test.backends.tensorflow import windows

        plan = getattr(windows, function).plan
        ones = partial(tf.ones, dtype=dtype)
    op = OPERATORS["ConvTranspose" if function == "conv_transpose" else "Conv"](
        strides=(1, strides)
    )
    outer = 4 if function == "conv_transpose" else channels
    inputs = ones((1, outer, 5, 8)), ones((4, channels, kernel, kernel))
    if not refused:
        assert plan(op, *inputs)(*inputs).shape[0] == 1
        return
    with pytest.raises(Unsupported, match="writes past the end"):
        plan(op, *inputs)


@pytest.mark.parametrize(
    ("a", "b", "dtype", "refused"),
    [
        ((2, 1, 2, 3), (3, 4), "float32", True),
        ((2, 1, 2, 3), (1, 1, 3, 4), "bfloat16", True),
        ((2, 1, 2, 3), (3, 4), "float64", False),
        ((2, 1, 1, 3), (3, 4), "float32", False),
        ((1, 2, 2, 3), (3, 4), "float32", False),
        ((2, 1, 2, 3), (2, 1, 3, 4), "float32", False),
        ((2, 2, 3), (3, 4), "float32", False),
    ],
)
def test_products_of_a_shared_matrix_are_not_asked(
    a: tuple[int, ...], b: tuple[int, ...], dtype: str, refused: bool
) -> None:
    tf = pytest.importorskip("tensorflow")
    from d5test.backends.tensorflow.linear import matmul

    op, factors = OPERATORS["MatMul"](), (tf.ones(a, dtype), tf.ones(b, dtype))
    if not refused:
        assert matmul(op, *factors).shape[-2:] == (a[-2], b[-1])
        return
    with pytest.raises(Unsupported, match="writes past the end"):
        matmul(op, *factors)
