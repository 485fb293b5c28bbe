"""The references on CuPy arrays: every operator's own formula, forward and backward, on a GPU.

Needs CuPy with CUDA, and d5test's references (hence SciPy) under the same interpreter. Floating-
point inputs are computed on the device in their own dtype, float16 in float32; integers and
booleans go to the host, where the references read them, and constants come from it. Rows are
composed: they judge CuPy's functions together, and are never timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar

import cupy
import cupyx.scipy.special
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from d5test.backends.base import Backend, Row, Unsupported
from d5test.backends.numpy import Numpy, Tape, laid_out, reference_rows
from d5test.reference.operators import OPERATORS


class OnDevice(NDArrayOperatorsMixin):
    """A CuPy array on which reference code runs unchanged.

    CuPy's own arrays do not mix with NumPy's, which the references use for masks, counts and
    indices; and NumPy's protocols do not lead to CuPy's `erf` and `put_along_axis`.
    Here NumPy's arrays are moved to the device where they meet one that is there.
    """

    __slots__ = ("value",)
    __array_priority__ = 1000

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an array on the device cannot become NumPy's: it would be computed there")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(_function_of(ufunc.__name__), method)
        out = kwargs.pop("out", None)
        if out is None:
            return _wrapped(function(*_lifted(inputs), **_lifted(kwargs)))
        function(*_lifted(inputs), out=out[0].value, **_lifted(kwargs))
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.put_along_axis:
            return put_along_axis(*args, **kwargs)
        if function is np.where:  # CuPy asks for an array
            args = (cupy.asarray(_lifted(args[0])), *args[1:])
        path = ".".join((*function.__module__.split(".")[1:], function.__name__))
        try:
            counterpart = attrgetter(path)(cupy)
        except AttributeError:
            return NotImplemented
        return _wrapped(counterpart(*_lifted(args), **_lifted(kwargs)))

    def __getattr__(self, name: str) -> Any:
        """CuPy's own attributes and methods: shape, sum, reshape, ..."""
        if name.startswith("__"):
            raise AttributeError(name)
        member = getattr(self.value, name)
        if not callable(member) or isinstance(member, cupy.ndarray):
            return _wrapped(member)
        return lambda *args, **kwargs: _wrapped(member(*_lifted(args), **_lifted(kwargs)))

    def __getitem__(self, key: Any) -> OnDevice:
        return OnDevice(cupy.asarray(self.value[_lifted(key)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value[_lifted(key)] = _lifted(value)

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"OnDevice({self.value!r})"


def put_along_axis(array: OnDevice, indices: Any, values: Any, axis: int) -> None:
    """`np.put_along_axis`, which CuPy has only since version 14, by an index of every axis."""
    where, shape = _lifted(indices), array.value.shape
    index = [
        cupy.arange(n).reshape([-1 if i == along else 1 for i in range(len(shape))])
        for along, n in enumerate(shape)
    ]
    index[axis] = where
    array.value[tuple(index)] = _lifted(values)


def _function_of(ufunc: str) -> Any:
    for module in (cupy, cupyx.scipy.special):
        if hasattr(module, ufunc):
            return getattr(module, ufunc)
    raise Unsupported(f"CuPy has no function {ufunc}")


def _lifted(x: Any) -> Any:
    """What CuPy takes: its arrays for ours and NumPy's, Python's numbers for NumPy's."""
    if isinstance(x, OnDevice):
        return x.value
    if isinstance(x, np.ndarray):
        return cupy.asarray(x)
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, (tuple, list)):
        return type(x)(_lifted(one) for one in x)
    if isinstance(x, dict):
        return {name: _lifted(one) for name, one in x.items()}
    return x


def _wrapped(y: Any) -> Any:
    if isinstance(y, cupy.ndarray):
        return OnDevice(y)
    return type(y)(map(_wrapped, y)) if isinstance(y, (tuple, list)) else y


def entered(x: Any) -> Any:
    """An input as the reference takes it: integers and booleans on the host."""
    if x is None:
        return None
    if x.dtype.kind != "f":
        return cupy.asnumpy(x)
    return OnDevice(x.astype(np.float32) if x.dtype == np.float16 else x)


def rounded(y: Any, like: Sequence[Any]) -> Any:
    """A result on the device, in the dtype of the first floating-point input if it is one."""
    y = cupy.asarray(_lifted(y))
    floating = (x.dtype for x in like if x is not None and x.dtype.kind == "f")
    return y.astype(next(floating, y.dtype)) if y.dtype.kind == "f" else y


class DeviceTape(Tape):
    """Recorded calls on CuPy's arrays."""

    entered = staticmethod(entered)
    left = staticmethod(rounded)


class Cupy(Numpy):
    """CuPy under the references."""

    framework = "cupy"
    rows: ClassVar[Mapping[str, Row]] = reference_rows(
        {name: cls for name, cls in OPERATORS.items() if not cls.typed},  # has no such dtypes
        DeviceTape,
        native=False,
        dtypes=("float64", "float32", "float16"),
    )
    updaters: ClassVar[Mapping[str, Any]] = {}
    tape = DeviceTape
    jvp, hvp = Backend.jvp, Backend.hvp  # dual numbers are NumPy's

    default_device = "cuda"

    def __init__(self, device: str = "cuda") -> None:
        if not cupy.cuda.is_available():
            raise Unsupported(
                f"cupy {cupy.__version__} is installed, but cupy.cuda.is_available() is False: "
                "it needs an NVIDIA GPU and a driver for the CUDA that it was built with"
            )
        super().__init__(device)
        self._number = int(device.partition(":")[2] or 0)
        cupy.cuda.Device(self._number).use()

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        count = int(cupy.cuda.runtime.getDeviceCount()) if cupy.cuda.is_available() else 0
        return tuple(f"cuda:{i}" for i in range(count))

    def nondeterministic(self, operator: str, what: str) -> str:
        return "what scatters adds by atomic additions, in any order"

    def lost(self, error: Exception) -> bool:
        return isinstance(error, cupy.cuda.runtime.CUDARuntimeError)

    @property
    def version(self) -> str:
        return str(cupy.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        if dtype == "bfloat16":
            raise Unsupported("the references on CuPy have no bfloat16")
        return laid_out(cupy, cupy.array(array, order="C"), layout)

    def refill(self, tensor: Any, array: NDArray[Any], dtype: str) -> None:
        tensor[...] = cupy.asarray(array)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return np.array(cupy.asnumpy(tensor), order="C"), tensor.dtype.name

    def wait(self, tensors: Sequence[Any]) -> None:
        cupy.cuda.get_current_stream().synchronize()

    def describe_device(self) -> str:
        name = cupy.cuda.runtime.getDeviceProperties(self._number)["name"]
        return name.decode() if isinstance(name, bytes) else str(name)
