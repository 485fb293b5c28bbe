"""What runs below a call of torch: operators of ATen, primitives of oneDNN, routines of MKL.

The names of the last two are those that the libraries print when they are told to, by torch's own
switches; what they print is caught on its way out of the process.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

PRIMITIVE = "exec"
"""What stands in a line of oneDNN before engine, kind and implementation."""
ROUTINE = re.compile(r"MKL_VERBOSE (\w+)\(")
"""How a line of MKL begins, where it is of a call."""


class Dispatched(TorchDispatchMode):  # type: ignore[misc]
    """Within: the operators of ATen that are called, gradients included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def of_libraries(call: Callable[[], Any]) -> list[str]:
    """The primitives and routines that run in a call, `convolution:jit:avx512_core`."""
    mkl, onednn = torch.backends.mkl, torch.backends.mkldnn
    with printed() as lines, onednn.verbose(onednn.VERBOSE_ON), mkl.verbose(mkl.VERBOSE_ON):
        call()
    return list(named(lines))


def on_device(call: Callable[[], Any]) -> list[str]:
    """The kernels that run on a GPU, by the profiler; their names have their whole signatures."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    kernels = (event for event in profile.key_averages() if event.device_type == DeviceType.CUDA)
    return [event.key for event in kernels]


def named(lines: list[str]) -> Iterator[str]:
    """The names in what oneDNN and MKL print."""
    for line in lines:
        words = line.split(",")
        if routine := ROUTINE.match(line):
            yield f"mkl:{routine[1].lower()}"
        elif words[0].endswith("_verbose") and PRIMITIVE in words[:-3]:
            at = words.index(PRIMITIVE)
            yield ":".join(words[at + 2 : at + 4])


@contextmanager
def printed() -> Iterator[list[str]]:
    """Within: what is printed in C is caught; afterwards the lines are in the list."""
    lines: list[str] = []
    flush = ctypes.CDLL(None).fflush
    with os.fdopen(os.memfd_create("printed"), "w+b") as caught:
        flush(None)
        before = os.dup(1)
        os.dup2(caught.fileno(), 1)
        try:
            yield lines
        finally:
            flush(None)
            os.dup2(before, 1)
            os.close(before)
            caught.seek(0)
            lines += caught.read().decode(errors="replace").splitlines()
