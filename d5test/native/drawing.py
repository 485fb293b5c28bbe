"""How cases of a native operator are drawn: by what it registers, or as its author says.

An axis that has a name has one size wherever the name stands; `...` is any number of leading axes.
Attributes are the default or one of the others that are registered.
"""

from __future__ import annotations

from d5test.case import Operator, Tensor
from d5test.native.library import Declared, Port
from d5test.native.reference import Written
from d5test.strategies import Draw, attributes, inputs
from d5test.values import REGIMES

INTEGERS = ("below", 2)
"""The regime of integers of which none is registered."""


def enter(operator: type[Operator], declared: Declared) -> None:
    """Make cases of an operator drawable."""
    for port in declared.inputs:
        if port.values and port.regime[0] not in REGIMES:
            raise ValueError(
                f"{declared.name}: input {port.name} has values {port.values!r}; "
                f"there are {', '.join(REGIMES)}"
            )

    @attributes(operator)
    def draw_attributes(d: Draw) -> Operator:
        drawn = {c.name: d.choose((c.default, *c.others)) for c in declared.attributes}
        return operator(**drawn)

    @inputs(operator)
    def draw_inputs(d: Draw, op: Operator) -> tuple[Tensor | None, ...]:
        own = op.custom.draw_inputs(d) if isinstance(op, Written) else None
        return own if own is not None else registered_inputs(d, declared)


def registered_inputs(d: Draw, declared: Declared) -> tuple[Tensor | None, ...]:
    """Inputs with the axes that are registered; optional ones now and then left out."""
    sizes: dict[str, tuple[int, ...]] = {}
    return tuple(_tensor(d, port, sizes) for port in declared.inputs)


def _tensor(d: Draw, port: Port, sizes: dict[str, tuple[int, ...]]) -> Tensor | None:
    if port.optional and d.flag():
        return None
    shape: tuple[int, ...] = ()
    named = port.dims.split()
    for name in named:
        if name == "*" or name not in sizes:
            sizes[name] = _size(d, name, alone=len(named) == 1)
        shape += sizes[name]
    if port.mask and d.flag():
        return d.mask(shape)
    if port.whole:
        return d.tensor(shape, port.regime or INTEGERS, dtype="int64")
    return d.tensor(shape, *((port.regime,) if port.values else ()))


def _size(d: Draw, name: str, *, alone: bool) -> tuple[int, ...]:
    if name == "*":
        return d.shape(least=0)
    if name == "...":
        return d.shape() if alone else d.shape(least=0, most=2)
    return (int(name),) if name.isdigit() else (d.side(empty=True),)
