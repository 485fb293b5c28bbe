"""What oneDNN does to memory in torch's convolutions, and that no such call is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from d5test.backends.base import Unsupported
from d5test.reference.operators import OPERATORS

torch = pytest.importorskip("torch")

TITLE = "torch.nn.Conv2d, 3d in channels_last"
CHECKED = Path("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0")
"""glibc's allocator that looks at what surrounds each block."""
CALLS = """
import torch, torch.nn.functional as F
x, w = torch.ones(1, 2, 5, 8), torch.ones(16, 2, 1, 1)
x, w = (t.bfloat16().to(memory_format=torch.channels_last).requires_grad_() for t in (x, w))
for _ in range(3000):
    torch.autograd.grad(F.conv2d(x, w, stride=(1, 2)).sum(), w)
"""


@pytest.mark.parametrize(
    ("channels", "kernel", "strides", "dtype", "refused"),
    [
        (2, 1, 2, "bfloat16", True),
        (15, 1, 3, "bfloat16", True),
        (16, 1, 2, "bfloat16", False),
        (2, 1, 1, "bfloat16", False),
        (2, 2, 2, "bfloat16", False),
        (2, 1, 2, "float32", False),
    ],
)
def test_strided_pointwise_convolutions_of_few_channels_are_not_asked(
    channels: int, kernel: int, strides: int, dtype: str, refused: bool
) -> None:
    from d5test.backends.torch.forms.windows import conv_last

    op = OPERATORS["Conv"](strides=(1, strides))
    x = torch.ones(1, channels, 5, 8, dtype=getattr(torch, dtype))
    w = torch.ones(4, channels, kernel, kernel, dtype=x.dtype)
    if not refused:
        assert conv_last(op, x, w).shape[:2] == (1, 4)
        return
    with pytest.raises(Unsupported, match="writes past the end"):
        conv_last(op, x, w)


@pytest.mark.nightly
@pytest.mark.skipif(not CHECKED.exists(), reason="glibc's checking allocator is not here")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="oneDNN has other kernels here"
)
def test_the_memory_of_others_is_still_overwritten() -> None:
    """Once it is not, nothing has to be refused."""
    checking = os.environ | {"LD_PRELOAD": str(CHECKED), "MALLOC_CHECK_": "3"}
    done = subprocess.run([sys.executable, "-c", CALLS], env=checking, capture_output=True)
    assert done.returncode < 0, done.stderr.decode()
