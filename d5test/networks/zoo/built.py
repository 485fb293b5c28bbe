"""A network made by code: how it is made, and what it is fed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from d5test.case import Array, Tensor, is_float
from d5test.networks.network import Network


@dataclass(frozen=True)
class Built:
    """A network by name.

    make    makes it, with parameters of its own seed
    shapes  of the inputs with which it is judged
    limits  of the integer inputs: they are below that
    loss    the output that is differentiated, if there is one
    """

    name: str
    make: Callable[[], Network]
    shapes: Mapping[str, tuple[int, ...]]
    limits: Mapping[str, int]
    loss: str | None = "loss"

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The network in an ONNX file: sides without a size are 2, whole numbers 0 or 1."""
        inputs = Network(path).inputs
        shapes = {
            name: tuple(side if isinstance(side, int) else 2 for side in value.shape)
            for name, value in inputs.items()
        }
        limits = {name: 2 for name, value in inputs.items() if not is_float(value.dtype)}
        loss = "loss" if "loss" in Network(path).outputs else None
        return cls(path.stem, lambda: Network(path), shapes, limits, loss)

    def network(self) -> Network:
        """The network, made anew."""
        return self.make()

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
