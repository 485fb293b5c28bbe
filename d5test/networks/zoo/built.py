"""Networks made by code: how one is written, and how it is fed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator, Tensor, is_float
from d5test.networks.external import array, data_sets
from d5test.networks.graph import Graph, Node, Value
from d5test.networks.network import Network
from d5test.reference.operators.linear import Gemm
from d5test.reference.operators.reductions import SoftmaxCrossEntropyLoss


class Draft:
    """A network that is being written: nodes in a row, parameters of one seed as they come.

    They are in float32. It is checked once, when it is finished.
    """

    def __init__(self, name: str, seed: int = 0, **inputs: Value) -> None:
        self._graph = Graph(name, (), inputs, ())
        self._seed = seed
        self._nodes: list[Node] = []
        self._arrays: dict[str, Array] = {}

    def add(self, name: str, op: Operator, *inputs: str) -> str:
        """The tensor that a new node makes; it has the node's name."""
        self._nodes.append(Node(name, op, inputs, (name,)))
        return name

    def add_several(self, name: str, op: Operator, *inputs: str, outputs: int) -> tuple[str, ...]:
        """The tensors that a new node makes; they have the node's name and a number."""
        tensors = tuple(f"{name}_{i}" for i in range(outputs))
        self._nodes.append(Node(name, op, inputs, tensors))
        return tensors

    def normal(
        self, name: str, shape: tuple[int, ...], deviation: float, around: float = 0
    ) -> str:
        """A parameter of normal values with this standard deviation."""
        values = Tensor(shape, "float64", ("normal",)).array(self._seed, len(self._arrays))
        return self.array(name, around + deviation * values)

    def scale_and_shift(self, name: str, n: int) -> tuple[str, str]:
        """The parameters of a normalisation: scales near 1 and shifts near 0."""
        scale = self.normal(f"{name}_scale", (n,), 0.1, around=1)
        return scale, self.normal(f"{name}_shift", (n,), 0.1)

    def array(self, name: str, values: Any) -> str:
        """A parameter in float32; whole numbers and booleans are constants."""
        array = np.asarray(values)
        self._arrays[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
        return name

    def linear(self, name: str, x: str, fan_in: int, fan_out: int, gain: float = 1) -> str:
        """x w + b for x (n, fan_in); He et al., arXiv 1502.01852, have gain 2 before a Relu."""
        w = self.normal(f"{name}_w", (fan_in, fan_out), math.sqrt(gain / fan_in))
        return self.add(name, Gemm(), x, w, self.normal(f"{name}_b", (fan_out,), 0.1))

    def loss(self, scores: str, labels: str) -> str:
        """The mean cross entropy, as the tensor `loss`."""
        return self.add("loss", SoftmaxCrossEntropyLoss(), scores, labels)

    def finished(self, *outputs: str) -> Network:
        """The network with these outputs."""
        graph = self._graph.with_(nodes=tuple(self._nodes), outputs=outputs)
        return Network(graph.with_arrays(self._arrays))


@dataclass(frozen=True)
class Built:
    """A network by name.

    network  makes it, with parameters of its own seed
    shapes   of the inputs with which it is judged
    limits   of the integer inputs: they are below that
    loss     the output that is differentiated, if there is one
    dtypes   of inputs that are not in float32, or not int64 where they have a limit
    """

    name: str
    network: Callable[[], Network]
    shapes: Mapping[str, tuple[int, ...]]
    limits: Mapping[str, int]
    loss: str | None = "loss"
    dtypes: Mapping[str, str] = field(default_factory=dict)

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
        if held := [name for name, value in inputs.items() if value.within]:
            raise Unsupported(f"the input {held[0]!r} is a sequence or optional: none is drawn")
        shapes = (shapes_beside(path, inputs) if path else {}) or {
            name: tuple(side if isinstance(side, int) else 2 for side in value.shape)
            for name, value in inputs.items()
        }
        limits = {name: 2 for name, value in inputs.items() if not is_float(value.dtype)}
        loss = "loss" if "loss" in network.outputs else None
        dtypes = {name: value.dtype for name, value in inputs.items()}
        return cls(name, make, shapes, limits, loss, dtypes)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Random inputs: normal, or whole numbers below their limit."""
        return {
            name: (
                Tensor(shape, self.dtypes.get(name, "int64"), ("below", self.limits[name]))
                if name in self.limits
                else Tensor(shape, self.dtypes.get(name, "float32"))
            ).array(seed, position)
            for position, (name, shape) in enumerate(self.shapes.items())
        }


def shapes_beside(path: Path, inputs: Mapping[str, Value]) -> dict[str, tuple[int, ...]]:
    """The shapes of the first data set beside a model; none if they are not of these inputs."""
    for folder in data_sets(path)[:1]:
        files = {name: folder / f"input_{i}.pb" for i, name in enumerate(inputs)}
        shapes = {name: array(file).shape for name, file in files.items() if file.is_file()}
        if shapes.keys() == inputs.keys() and all(
            fits(value.shape, shapes[name]) for name, value in inputs.items()
        ):
            return shapes
    return {}


def fits(declared: Sequence[int | str], shape: tuple[int, ...]) -> bool:
    """Whether a shape is one that is declared."""
    return len(declared) == len(shape) and all(
        isinstance(side, str) or side == size for side, size in zip(declared, shape, strict=True)
    )
