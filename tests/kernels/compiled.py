"""A backend whose kernels are those of entered.cpp; the library is named by a variable."""

import ctypes
import os
from typing import Any

import numpy as np

from d5test.backends.base import Backend, Table, Unsupported

rows = Table()
LIBRARY = os.environ["D5TEST_ENTERED"]


def pointer(x: Any) -> Any:
    return x.ctypes.data_as(ctypes.c_void_p)


@rows.native("Relu", dtypes=("float32",))
def relu(op: Any, x: Any) -> Any:
    if x.dtype != np.float32:
        raise Unsupported("float32 alone")
    y = np.empty_like(x)
    compiled().relu(pointer(x), pointer(y), ctypes.c_long(x.size))
    return y


@rows.native("Abs", dtypes=("float32",), gradient="there is none")
def zero(op: Any, x: Any) -> Any:
    """It is wrong."""
    y = np.zeros_like(x)
    compiled().never(pointer(y)) if y.size else None
    return y


@rows.native("Act")
def act(op: Any, x: Any) -> Any:
    if op.deed == "raise":
        compiled().relu(pointer(x), pointer(x), ctypes.c_long(x.size))
        raise ValueError("on purpose")
    function = getattr(compiled(), op.deed)
    function.restype = ctypes.c_long
    return np.array([float(function() or 0)], np.float64)


def compiled() -> Any:
    return ctypes.CDLL(LIBRARY)


class Compiled(Backend):
    framework = "numpy"
    rows = rows
    libraries = (LIBRARY,)

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        compiled()

    @property
    def version(self) -> str:
        return np.__version__

    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        return np.array(array)

    def get(self, tensor: Any) -> tuple[Any, str]:
        return np.array(tensor), tensor.dtype.name

    def wait(self, tensors: Any) -> None:
        """Nothing is waited for."""

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        (x,), (dy,) = inputs, grads
        dx = np.empty_like(x)
        size = ctypes.c_long(x.size)
        compiled().relu_gradient(pointer(x), pointer(np.ascontiguousarray(dy)), pointer(dx), size)
        return (function(*inputs),), [dx]


class Elsewhere(Compiled):
    """Nothing of what it says that it computes with is loaded."""

    libraries = ("/no/such/library",)
