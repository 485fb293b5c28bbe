"""The backends with rows for native operators, a module a framework.

A worker is told by a variable which libraries there are. A bridge's backend is the framework's own
with a row for each operator of theirs: what is called by a check runs between guard zones, what is
planned and timed does not.

A framework that hands on one number (XLA, TensorFlow) hands on the address of a `Bound`, which
`source/row_major.h` has in C++. It says, too, which tensors there are: a call has those alone.
"""

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.backends.base import Plan, Row, Unsupported, planned
from d5test.native import interface
from d5test.native.library import Declared, Made, NativeError, Port, declared

DTYPES = ("float64", "float32")
"""Those that operators are compiled for."""
LIBRARIES = "D5TEST_NATIVE"
"""The variable with the paths of the libraries, as PATH has its folders."""

BRIDGED: Mapping[str, str] = MappingProxyType(
    {
        f"d5test.backends.{module}:{name}": f"d5test.native.bridges.{module}:Native{name}"
        for module, name in (
            ("numpy", "Numpy"),
            ("torch", "Torch"),
            ("torch", "TorchCompiled"),
            ("jax", "Jax"),
            ("jax", "JaxCompiled"),
            ("tensorflow", "TensorFlow"),
            ("tensorflow", "TensorFlowCompiled"),
        )
    }
)
"""The backends that have a bridge, and where their classes with native rows are."""


def environment(libraries: Iterable[Path]) -> dict[str, str]:
    """The variables by which a worker has these."""
    return {LIBRARIES: os.pathsep.join(map(str, libraries))}


def available() -> Iterator[Declared]:
    """The operators of all libraries that this process was told of."""
    for path in filter(None, os.environ.get(LIBRARIES, "").split(os.pathsep)):
        yield from declared(path).values()


def with_native(target: str, source: str) -> Any:
    """A backend's class with the operators of a file, compiled where need be: for reproducers."""
    from d5test.native import compiler
    from d5test.worker.worker import load

    os.environ.update(environment([compiler.library(source)]))
    return load(BRIDGED[target])


@dataclass(frozen=True)
class Guarded(planned):
    """A row's call in two steps; called by a check, it runs between guard zones."""

    guarded: Callable[..., Plan]

    def __call__(self, op: Any, *inputs: Any) -> Any:
        """Both steps, guarded."""
        return self.guarded(op, *inputs)(*inputs)


def sources() -> dict[str, str]:
    """The files of those operators, by name."""
    return {one.name: one.source for one in available()}


def row(one: Declared, plan: Callable[..., Plan], guarded: Callable[..., Plan]) -> Row:
    """The row of a native operator."""
    return Row(
        Guarded(plan, guarded),
        dtypes=DTYPES,
        gradient="" if one.differentiable else f"{one.name} has no backward",
        stopped=tuple(k for k, port in enumerate(one.inputs) if port.constant),
    )


def rows(plan: Callable[..., Plan], *, cuda: bool = False) -> dict[str, Row]:
    """The rows of all native operators by `plan(one, guarded, op, *inputs)`."""
    return {
        one.name: row(one, partial(plan, one, False), partial(plan, one, True))
        for one in available()
        if cuda or not one.on_cuda
    }


def asked(one: Declared, op: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """The attributes that an operator is asked for with. Raises `Unsupported`."""
    if len(inputs) > len(one.inputs):
        raise Unsupported(f"{one.name} has {len(one.inputs)} inputs, not {len(inputs)}")
    for port, x in zip_longest(one.inputs, inputs):
        if x is None and not port.optional:
            raise Unsupported(f"{one.name} needs its input {port.name}")
    known = [choice.name for choice in one.attributes]
    attributes = {name: value for name, value in op.attributes.items() if value is not None}
    for name in attributes:
        if name not in known:
            raise Unsupported(f"{one.name} has no attribute {name}")
    return attributes


def first_floating(
    one: Declared, inputs: Iterable[Any], is_floating: Callable[[Any], bool]
) -> Any:
    """The input whose dtype the operator computes in. Raises `Unsupported` where there is none."""
    for x in inputs:
        if x is not None and is_floating(x):
            return x
    raise Unsupported(f"{one.name} has no input of floating-point numbers, whose dtype it has")


def bits_of(one: Declared, dtype: np.dtype[Any]) -> int:
    """The bits of the dtype that an operator computes in. Raises `Unsupported`."""
    if dtype.name not in DTYPES:
        raise Unsupported(f"{one.name} is compiled for float32 and float64, not {dtype.name}")
    return 8 * dtype.itemsize


def taken(port: Port, dtype: str, computed: str) -> None:
    """Raise `Unsupported` unless an input of this dtype fits an operator that computes in one.

    Integers may be of any width: who calls makes them int64.
    """
    if port.whole and "int" not in dtype:
        raise Unsupported(f"{port.name} is of integers, not {dtype}")
    if not port.whole and dtype != computed and not (port.mask and dtype == "bool"):
        raise Unsupported(f"{port.name} is of {computed}, not {dtype}")


Shape = tuple[Any, ...]


def shapes(
    one: Declared, inputs: Sequence[Any], attributes: Mapping[str, Any], bits: int
) -> list[Shape]:
    """The shapes of the outputs that are there, of these inputs; `None` is an absent one."""
    sizes = [None if x is None else tuple(x.shape) for _, x in zip_longest(one.inputs, inputs)]
    if one.shaped_by_axes:
        return by_axes(one, sizes)
    nothing = np.empty(0, interface.DTYPES[bits])
    placed = [
        None
        if shape is None
        else np.lib.stride_tricks.as_strided(nothing, tuple(map(int, shape)), (0,) * len(shape))
        for shape in sizes
    ]
    return list(one.make(attributes, bits, guarded=False).shapes(placed))


def by_axes(one: Declared, inputs: Sequence[Shape | None]) -> list[Shape]:
    """By names alone. Raises `Unsupported` where sizes do not agree, and `NativeError` where an
    output has an axis that no input has.
    """
    sizes: dict[str, Shape] = {}
    for port, shape in zip(one.inputs, inputs, strict=True):
        if shape is None or port.dims == "*":
            continue
        names = port.dims.split()
        leading = len(shape) - len(names) + 1 if "..." in names else 0
        if leading < 0 or ("..." not in names and len(shape) != len(names)):
            raise Unsupported(f"{one.name}: input {port.name} has {len(shape)} axes")
        at = 0
        for name in names:
            size = shape[at : at + leading] if name == "..." else shape[at : at + 1]
            at += len(size)
            expected = (int(name),) if name.isdigit() else sizes.setdefault(name, size)
            if tuple(expected) != tuple(size):
                raise Unsupported(f"{one.name}: input {port.name} does not fit at axis {name}")
    return [_shape(one, port, sizes) for port in one.outputs]


def _shape(one: Declared, port: Port, sizes: Mapping[str, Shape]) -> Shape:
    shape: Shape = ()
    for name in port.dims.split():
        if not name.isdigit() and name not in sizes:
            raise NativeError(
                f'{one.name} throws: no input has the axis "{name}" of output {port.name}: '
                "override shapes()"
            )
        shape += (int(name),) if name.isdigit() else sizes[name]
    return shape


class Bound(ctypes.Structure):
    """An operator's table, the operator made, and a bit for each input that is there, each of them
    that has a gradient, and each output that is there.
    """

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("made", ctypes.c_void_p),
        ("inputs", ctypes.c_uint64),
        ("slopes", ctypes.c_uint64),
        ("outputs", ctypes.c_uint64),
    )
    declared: Declared
    made_operator: Made
    has_slope: tuple[bool, ...]
    """Of each input that is there, whether it has a gradient."""


BOUND: dict[int, Bound] = {}
"""By address, for ever: compiled programs and graphs hold the addresses."""


@cache
def address(
    one: Declared,
    attributes: Any,
    bits: int,
    guarded: bool,
    slopes: tuple[bool | None, ...],
    outputs: int,
) -> int:
    """The address for an operator of these inputs (`differentiable` of each), and of its first
    `outputs` outputs.
    """
    made = one.make(dict(attributes), bits, guarded=guarded)
    there = _mask([has is not None for has in slopes]), _mask([has is True for has in slopes])
    bound = Bound(ctypes.addressof(one.table), made.pointer, *there, (1 << outputs) - 1)
    bound.declared, bound.made_operator = one, made
    bound.has_slope = tuple(has for has in slopes if has is not None)
    BOUND[ctypes.addressof(bound)] = bound
    return ctypes.addressof(bound)


def differentiable(
    one: Declared, inputs: Sequence[Any], is_floating: Callable[[Any], bool]
) -> tuple[bool | None, ...]:
    """Of each input, whether it has a gradient; `None` of those that are absent."""
    return tuple(
        None if x is None else is_floating(x) and not port.constant
        for port, x in zip_longest(one.inputs, inputs)
    )


def _mask(bits: Sequence[bool]) -> int:
    return sum(1 << k for k, bit in enumerate(bits) if bit)
