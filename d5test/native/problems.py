"""Native operators as problems, to be timed: one so small that the call costs most, one large."""

from __future__ import annotations

from collections.abc import Iterator

from d5test.case import Case, Operator, Tensor
from d5test.native.drawing import INTEGERS
from d5test.native.library import Declared, Port
from d5test.problems import Problem

SIZES = (16, 1 << 20)
"""Elements of the largest input, about."""


def problems(operator: type[Operator], declared: Declared) -> Iterator[Problem]:
    """Problems with the default attributes, every named axis as long as the others."""
    axes = max((len(_sides(port, 2)) for port in declared.inputs), default=1)
    for size in SIZES:
        side = round(size ** (1 / max(axes, 1)))
        inputs = tuple(
            Tensor(_sides(port, side), "int64", values=port.regime or INTEGERS)
            if port.whole
            else Tensor(_sides(port, side), values=port.regime or ("normal",))
            for port in declared.inputs
        )
        name = f"{declared.name.lower()}-{'x'.join(map(str, inputs[0].shape))}"
        yield Problem(name, Case(operator(), inputs), f"axes registered in {declared.source}")


def _sides(port: Port, side: int) -> tuple[int, ...]:
    return tuple(int(name) if name.isdigit() else side for name in port.dims.split())
