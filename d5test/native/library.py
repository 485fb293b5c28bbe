"""A compiled operator called on NumPy arrays: what its library declares, and what it computes.

NumPy and the standard library only: this runs in workers, perhaps under another interpreter.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """An input or output. `dims` names its axes, `values` a regime of `d5test.values`."""

    name: str
    dims: str
    values: str


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

    def make(self, attributes: Mapping[str, Any], bits: int, *, guarded: bool) -> Made:
        """The operator with its attributes set. Raises `Unsupported` for one it does not have."""
        kinds = {choice.name: choice.kind for choice in self.attributes}
        for name in attributes:
            if name not in kinds:
                raise Unsupported(f"{self.name} has no attribute {name}")
        values = [interface.attribute(n, kinds[n], value) for n, value in attributes.items()]
        given = (interface.Attribute * max(len(values), 1))(*values)
        pointer = ctypes.c_void_p()
        said = Said()
        said.check(
            self.table.create(
                ctypes.addressof(self.table), given, len(values), bits, guarded,
                ctypes.byref(pointer), said.message,
            )
        )  # fmt: skip
        return Made(self, pointer)


class Made:
    """An operator that is ready to be called on arrays of one dtype."""

    def __init__(self, declared: Declared, pointer: ctypes.c_void_p) -> None:
        self.declared = declared
        self.pointer = pointer
        weakref.finalize(self, declared.table.destroy, pointer)

    def shapes(self, inputs: Sequence[Array]) -> list[tuple[int, ...]]:
        """The outputs' shapes."""
        declared, said = self.declared, Said()
        found = interface.unknown_shapes(len(declared.outputs))
        status = declared.table.infer(self.pointer, interface.tensors(inputs), found, said.message)
        said.check(status)
        return [tuple(found[k].shape[: found[k].ndim]) for k in range(len(declared.outputs))]

    def forward(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs."""
        said = Said()
        outputs = [np.empty(shape, inputs[0].dtype) for shape in self.shapes(inputs)]
        status = self.declared.table.forward(
            self.pointer, interface.tensors(inputs), interface.tensors(outputs), None,
            said.message,
        )  # fmt: skip
        said.check(status)
        return tuple(outputs)

    def backward(
        self, grads: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array, ...]:
        """The inputs' gradients."""
        said = Said()
        found = [np.empty(x.shape, x.dtype) for x in inputs]
        status = self.declared.table.backward(
            self.pointer, *map(interface.tensors, (grads, inputs, outputs, found)), None,
            said.message,
        )  # fmt: skip
        said.check(status)
        return tuple(found)


class Said:
    """Room for what an operator says when it fails."""

    def __init__(self) -> None:
        self._room = ctypes.create_string_buffer(interface.MESSAGE)
        self.message = interface.Message(ctypes.addressof(self._room), interface.MESSAGE)

    def check(self, status: int) -> None:
        """Raise what a status stands for."""
        if status != interface.OK:
            raise ERRORS[status](self._room.value.decode(errors="replace"))


def declared(path: str | Path) -> dict[str, Declared]:
    """The operators of a compiled library, by name."""
    path = Path(path)
    found = {one.name: one for one in _declared(path)}
    if not found:
        raise NativeError(f"{path} registers no operator: D5TEST_OPERATOR(Name).input(...)...")
    return found


def _declared(path: Path) -> Iterator[Declared]:
    show = ctypes.CDLL(str(path)).d5test_operator
    show.restype, show.argtypes = ctypes.POINTER(interface.Table), (ctypes.c_int32,)
    index = 0
    while table := show(index):
        if table.contents.abi != interface.ABI:
            raise NativeError(f"{path} has interface {table.contents.abi}, not {interface.ABI}")
        yield Declared(path, table.contents)
        index += 1


def _port(port: Any) -> Port:
    return Port(port.name.decode(), port.dims.decode(), port.values.decode())


def _choice(choice: Any) -> Choice:
    others = tuple(interface.value(choice.others[k]) for k in range(choice.count))
    given = choice.value
    return Choice(given.name.decode(), given.kind, interface.value(given), others)
