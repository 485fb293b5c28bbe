"""A network made by code: how it is made, and what it is fed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from d5test.case import Array, Tensor, is_float
from d5test.networks.external import array, data_sets
from d5test.networks.graph import Value
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
        """The network in an ONNX file.

        Sides without a size are those of the first data set beside it, or 2 where there is none.
        """
        return cls.made_by(path.stem, lambda: Network(path), path)

    @classmethod
    def made_by(cls, name: str, make: Callable[[], Network], path: Path | None = None) -> Self:
        """The network that a function makes: whole numbers are 0 or 1, unknown sides are 2."""
        network = make()
        inputs = network.inputs
        shapes = (shapes_beside(path, inputs) if path else {}) or {
            name: tuple(side if isinstance(side, int) else 2 for side in value.shape)
            for name, value in inputs.items()
        }
        limits = {name: 2 for name, value in inputs.items() if not is_float(value.dtype)}
        return cls(name, make, shapes, limits, "loss" if "loss" in network.outputs else None)

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


def shapes_beside(path: Path, inputs: Mapping[str, Value]) -> dict[str, tuple[int, ...]]:
    """The shapes of the first data set beside a model; none if they are not of these inputs."""
    for folder in data_sets(path)[:1]:
        files = {name: folder / f"input_{i}.pb" for i, name in enumerate(inputs)}
        found = {name: array(file).shape for name, file in files.items() if file.is_file()}
        if found.keys() == inputs.keys() and all(
            fits(value.shape, found[name]) for name, value in inputs.items()
        ):
            return found
    return {}


def fits(declared: Sequence[int | str], shape: tuple[int, ...]) -> bool:
    """Whether a shape is one that is declared."""
    return len(declared) == len(shape) and all(
        isinstance(side, str) or side == size for side, size in zip(declared, shape, strict=True)
    )
