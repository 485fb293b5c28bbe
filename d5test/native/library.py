"""A compiled operator called on NumPy arrays: what its library declares, and what it computes.

NumPy and the standard library only: this runs in workers, perhaps under another interpreter.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Unsupported
from d5test.native import interface

Array = NDArray[Any]


class NativeError(RuntimeError):
    """The operator threw; the text names it."""


class NativeFault(NativeError):
    """The operator touched what is not its own, left an output unwritten, or keeps memory."""


ERRORS: Mapping[int, type[Exception]] = {
    interface.RAISED: NativeError,
    interface.UNSUPPORTED: Unsupported,
    interface.FAULT: NativeFault,
}


@dataclass(frozen=True)
class Port:
    """An input or output. `dims` names its axes, `values` a regime of `d5test.values`.

    `whole`: of int64. `mask`: of booleans, or of the operator's dtype. `constant`: no gradient.
    `unread`: an output that `backward` is not handed.
    """

    name: str
    dims: str
    values: str
    optional: bool = False
    whole: bool = False
    mask: bool = False
    constant: bool = False
    unread: bool = False

    @property
    def regime(self) -> tuple[Any, ...]:
        """The regime and its parameters, `("below", 5)` of "below 5"; nothing if none is named."""
        name, *numbers = self.values.split() or [""]
        return (name, *(float(n) if "." in n else int(n) for n in numbers)) if name else ()

    def gradient(self, x: Array | None) -> Array | None:
        """Room for the gradient of an input, if it has one."""
        if x is None or self.constant or x.dtype.kind != "f":
            return None
        return np.empty(x.shape, x.dtype)


@dataclass(frozen=True)
class Choice:
    """An attribute: its default, and other values that are worth a try."""

    name: str
    kind: int
    default: Any
    others: tuple[Any, ...]


class Declared:
    """An operator of a library, as it was registered."""

    def __init__(self, path: Path, table: Any) -> None:
        self.path = path
        self.table = table
        self.name: str = table.name.decode()
        self.source: str = table.source.decode()
        self.inputs = tuple(_port(table.inputs[k]) for k in range(table.input_count))
        self.outputs = tuple(_port(table.outputs[k]) for k in range(table.output_count))
        choices = (table.attributes[k] for k in range(table.attribute_count))
        self.attributes = tuple(_choice(choice) for choice in choices)
        self.differentiable = bool(table.flags & interface.BACKWARD)
        self.contiguous = bool(table.flags & interface.CONTIGUOUS)
        self.shaped_by_axes = not table.flags & interface.SHAPED
        self.on_cuda = table.device == interface.CUDA
        self.plain = not any(
            p.optional or p.whole or p.mask or p.constant for p in (*self.inputs, *self.outputs)
        )

    def read_backward(self, outputs: Sequence[Any]) -> list[Any]:
        """Of the outputs that are present, those that `backward` is handed."""
        return [y for port, y in zip(self.outputs, outputs, strict=False) if not port.unread]

    def make(self, attributes: Mapping[str, Any], bits: int, *, guarded: bool) -> Made:
        """The operator with its attributes set. Raises `Unsupported` for one it does not have."""
        kinds = {choice.name: choice.kind for choice in self.attributes}
        for name in attributes:
            if name not in kinds:
                raise Unsupported(f"{self.name} has no attribute {name}")
        values = [interface.attribute(n, kinds[n], value) for n, value in attributes.items()]
        array = (interface.Attribute * max(len(values), 1))(*values)
        pointer = ctypes.c_void_p()
        call(
            self.table.create, ctypes.addressof(self.table), array, len(values), bits, guarded,
            ctypes.byref(pointer),
        )  # fmt: skip
        return Made(self, pointer, np.dtype(interface.DTYPES[bits]))


class Made:
    """An operator that is ready to be called on arrays of one dtype.

    An array that is absent is `None`; trailing ones need not be given.
    """

    def __init__(self, declared: Declared, pointer: ctypes.c_void_p, dtype: np.dtype[Any]) -> None:
        self.declared = declared
        self.pointer = pointer
        self.dtype = dtype
        weakref.finalize(self, declared.table.destroy, pointer)

    def shapes(self, inputs: Sequence[Array | None]) -> list[tuple[int, ...]]:
        """The shapes of the outputs that are present."""
        return self._shapes(interface.tensors(_padded(inputs, self.declared.inputs)))

    def _shapes(self, inputs: Any) -> list[tuple[int, ...]]:
        ports = self.declared.outputs
        shapes = interface.unknown_shapes(len(ports))
        call(self.declared.table.infer, self.pointer, inputs, shapes)
        outputs = (shapes[k] for k in range(len(ports)))
        return [tuple(y.shape[: y.ndim]) for y in outputs if y.ndim != interface.ABSENT]

    def forward(self, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """The outputs that are present."""
        declared = self.declared
        tensors = interface.tensors(_padded(inputs, declared.inputs))
        outputs = [
            np.empty(shape, np.int64 if port.whole else self.dtype)
            for port, shape in zip(declared.outputs, self._shapes(tensors), strict=False)
        ]
        written = interface.tensors(_padded(outputs, declared.outputs))
        call(declared.table.forward, self.pointer, tensors, written, None)
        return tuple(outputs)

    def backward(
        self,
        grads: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
    ) -> tuple[Array | None, ...]:
        """The gradients of the inputs that are given: `None` where there is none."""
        declared = self.declared
        ports = declared.outputs, declared.inputs, declared.outputs, declared.inputs
        gradients = [p.gradient(x) for p, x in zip(declared.inputs, inputs, strict=False)]
        pairs = zip(declared.outputs, outputs, strict=False)
        outputs = [None if port.unread else y for port, y in pairs]
        arrays = map(_padded, (grads, inputs, outputs, gradients), ports)
        call(declared.table.backward, self.pointer, *map(interface.tensors, arrays), None)
        return tuple(gradients)


def call(function: Any, *arguments: Any) -> None:
    """Call a function of a library. Raises what its status stands for, with what it says."""
    room = ctypes.create_string_buffer(interface.MESSAGE)
    message = interface.Message(ctypes.addressof(room), interface.MESSAGE)
    status = function(*arguments, message)
    if status != interface.OK:
        raise ERRORS[status](room.value.decode(errors="replace"))


def declared(path: str | Path) -> dict[str, Declared]:
    """The operators of a compiled library, by name."""
    path = Path(path)
    show = ctypes.CDLL(str(path)).d5test_operator
    show.restype, show.argtypes = ctypes.POINTER(interface.Table), (ctypes.c_int32,)
    tables = [table.contents for table in takewhile(bool, map(show, count()))]
    if not tables:
        raise NativeError(f"{path} registers no operator: D5TEST_OPERATOR(Name).input(...)...")
    for table in tables:
        if table.abi != interface.ABI:
            raise NativeError(f"{path} has interface {table.abi}, not {interface.ABI}")
    return {one.name: one for one in (Declared(path, table) for table in tables)}


def _padded(arrays: Sequence[Array | None], ports: Sequence[Port]) -> list[Array | None]:
    return [*arrays, *[None] * (len(ports) - len(arrays))]


def _port(port: Any) -> Port:
    flags = {name: bool(port.flags & bit) for name, bit in interface.FLAGS.items()}
    return Port(port.name.decode(), port.dims.decode(), port.values.decode(), **flags)


def _choice(choice: Any) -> Choice:
    others = tuple(interface.value(choice.others[k]) for k in range(choice.count))
    usual = choice.value
    return Choice(usual.name.decode(), usual.kind, interface.value(usual), others)
