"""The backends with rows for native operators, a module a framework.

A worker is told by a variable which libraries there are. A bridge's backend is the framework's own
with a row for each operator of theirs: what is called by a check runs between guard zones, what is
planned and timed does not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from d5test.backends.base import Plan, Row, Unsupported, planned
from d5test.native.library import Declared, Made, Port, declared

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
    """What a worker has to be told to have these."""
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


@cache
def kept(one: Declared, attributes: Any, bits: int, guarded: bool) -> Made:
    """The operator made: for ever, since compiled programs and graphs hold its address."""
    return one.make(dict(attributes), bits, guarded=guarded)


def asked(one: Declared, op: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """The attributes that an operator is asked for with. Raises `Unsupported`."""
    if len(inputs) > len(one.inputs):
        raise Unsupported(f"{one.name} has {len(one.inputs)} inputs, not {len(inputs)}")
    for port, x in zip_longest(one.inputs, inputs):
        if x is None and not port.optional:
            raise Unsupported(f"{one.name} needs its input {port.name}")
    known = [choice.name for choice in one.attributes]
    found = {name: value for name, value in op.attributes.items() if value is not None}
    for name in found:
        if name not in known:
            raise Unsupported(f"{one.name} has no attribute {name}")
    return found


def first_floating(
    one: Declared, inputs: Iterable[Any], is_floating: Callable[[Any], bool]
) -> Any:
    """The input whose dtype the operator computes in. Raises `Unsupported` where there is none."""
    for x in inputs:
        if x is not None and is_floating(x):
            return x
    raise Unsupported(f"{one.name} has no input of floating-point numbers, whose dtype it has")


def taken(port: Port, dtype: str, computed: str) -> None:
    """Raise `Unsupported` unless an input of this dtype fits an operator that computes in one.

    Integers may be of any width: who calls makes them int64.
    """
    if port.whole and "int" not in dtype:
        raise Unsupported(f"{port.name} is of integers, not {dtype}")
    if not port.whole and dtype != computed and not (port.mask and dtype == "bool"):
        raise Unsupported(f"{port.name} is of {computed}, not {dtype}")


def row(one: Declared, plan: Callable[..., Plan], guarded: Callable[..., Plan]) -> Row:
    """The row of a native operator."""
    return Row(
        Guarded(plan, guarded),
        dtypes=("float64", "float32"),
        gradient="" if one.differentiable else f"{one.name} has no backward",
        stopped=tuple(k for k, port in enumerate(one.inputs) if port.constant),
    )
