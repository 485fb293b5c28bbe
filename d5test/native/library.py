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
        given = (interface.Attribute * max(len(values), 1))(*values)
        pointer = ctypes.c_void_p()
        said = Said()
        said.check(
            self.table.create(
                ctypes.addressof(self.table), given, len(values), bits, guarded,
                ctypes.byref(pointer), said.message,
            )
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
        given = interface.tensors(_padded(inputs, self.declared.inputs))
        return self._shapes(given, Said())

    def _shapes(self, given: Any, said: Said) -> list[tuple[int, ...]]:
        declared = self.declared
        found = interface.unknown_shapes(len(declared.outputs))
        said.check(declared.table.infer(self.pointer, given, found, said.message))
        shapes = (found[k] for k in range(len(declared.outputs)))
        return [tuple(one.shape[: one.ndim]) for one in shapes if one.ndim != interface.ABSENT]

    def forward(self, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """The outputs that are present."""
        declared, said = self.declared, Said()
        given = interface.tensors(_padded(inputs, declared.inputs))
        outputs = [
            np.empty(shape, np.int64 if port.whole else self.dtype)
            for port, shape in zip(declared.outputs, self._shapes(given, said), strict=False)
        ]
        written = interface.tensors(_padded(outputs, declared.outputs))
        status = declared.table.forward(self.pointer, given, written, None, said.message)
        said.check(status)
        return tuple(outputs)

    def backward(
        self,
        grads: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array | None],
    ) -> tuple[Array | None, ...]:
        """The gradients of the inputs that are given: `None` where there is none."""
        declared, said = self.declared, Said()
        ports = declared.outputs, declared.inputs, declared.outputs, declared.inputs
        found = [p.gradient(x) for p, x in zip(declared.inputs, inputs, strict=False)]
        pairs = zip(declared.outputs, outputs, strict=False)
        outputs = [None if port.unread else y for port, y in pairs]
        given = map(_padded, (grads, inputs, outputs, found), ports)
        status = declared.table.backward(
            self.pointer, *map(interface.tensors, given), None, said.message
        )
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


def _padded(arrays: Sequence[Array | None], ports: Sequence[Port]) -> list[Array | None]:
    return [*arrays, *[None] * (len(ports) - len(arrays))]


def _port(port: Any) -> Port:
    return Port(
        port.name.decode(),
        port.dims.decode(),
        port.values.decode(),
        optional=bool(port.flags & interface.OPTIONAL),
        whole=bool(port.flags & interface.WHOLE),
        mask=bool(port.flags & interface.MASK),
        constant=bool(port.flags & interface.CONSTANT),
        unread=bool(port.flags & interface.UNREAD),
    )


def _choice(choice: Any) -> Choice:
    others = tuple(interface.value(choice.others[k]) for k in range(choice.count))
    given = choice.value
    return Choice(given.name.decode(), given.kind, interface.value(given), others)
