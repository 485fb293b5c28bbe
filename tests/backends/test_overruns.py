"""What oneDNN does to memory in torch and TensorFlow, and that no such call is asked."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from d5test import processor
from d5test.backends.base import Unsupported
from d5test.reference.operators import OPERATORS

CHECKED = Path("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0")
"""glibc's allocator that looks at what surrounds each block."""
CONVOLUTION = """
import torch, torch.nn.functional as F
x, w = torch.ones(1, 2, 5, 8), torch.ones(16, 2, 1, 1)
x, w = (t.bfloat16().to(memory_format=torch.channels_last).requires_grad_() for t in (x, w))
for _ in range(3000):
    torch.autograd.grad(F.conv2d(x, w, stride=(1, 2)).sum(), w)
"""
GRADIENT = """
import tensorflow as tf
x, w = tf.ones((1, 96, 96, 2)), tf.ones((1, 1, 2, 3))
for _ in range(300):
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = tf.nn.conv2d(x, w, (1, 2, 2, 1), "VALID")
    tape.gradient(y, w)
"""
PRODUCT = """
import tensorflow as tf
for _ in range(300):
    tf.matmul(tf.ones((64, 1, 10, 3)), tf.ones((3, 4)))
"""


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


@pytest.mark.nightly
@pytest.mark.skipif(not CHECKED.exists(), reason="glibc's checking allocator is not here")
@pytest.mark.skipif("avx512f" not in processor.flags(), reason="oneDNN has other kernels here")
@pytest.mark.parametrize(
    ("module", "calls"),
    [
        ("torch", CONVOLUTION),
        ("tensorflow", GRADIENT),
        ("tensorflow", PRODUCT),
    ],
)
def test_the_memory_of_others_is_still_overwritten(module: str, calls: str) -> None:
    """Once it is not, nothing has to be refused. Whether a block is hit in a try is chance."""
    pytest.importorskip(module)
    checking = {"LD_PRELOAD": str(CHECKED), "MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", calls]
    assert any(subprocess.run(command, env=os.environ | checking).returncode < 0 for _ in range(8))
