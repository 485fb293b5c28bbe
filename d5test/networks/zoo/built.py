"""A network made by code: how it is made, and what it is fed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from d5test.case import Array, Tensor
from d5test.networks.network import Network


@dataclass(frozen=True)
class Built:
    """A network by name.

    make    makes it, with parameters of its own seed
    shapes  of the inputs with which it is judged
    limits  of the integer inputs: they are below that
    loss    the output that is differentiated
    """

    name: str
    make: Callable[[], Network]
    shapes: Mapping[str, tuple[int, ...]]
    limits: Mapping[str, int]
    loss: str = "loss"

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Random inputs: normal, or whole numbers below their limit."""
        return {
            name: (
                Tensor(shape, "int64", ("below", self.limits[name]))
                if name in self.limits
                else Tensor(shape)
            ).array(seed, position)
            for position, (name, shape) in enumerate(self.shapes.items())
        }
