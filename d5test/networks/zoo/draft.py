"""A network that is being written: nodes in a row, parameters drawn as they come."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from d5test.case import Array, Operator, Tensor, is_float
from d5test.networks.graph import Graph, Node, Value
from d5test.networks.network import Network
from d5test.reference.operators.linear import Gemm
from d5test.reference.operators.losses import SoftmaxCrossEntropyLoss


class Draft:
    """Nodes, and arrays of one seed in `dtype`. It is checked once, when it is finished."""

    def __init__(self, name: str, seed: int = 0, dtype: str = "float32", **inputs: Value) -> None:
        self._graph = Graph(name, (), inputs, ())
        self._seed = seed
        self._dtype = dtype
        self._nodes: list[Node] = []
        self._arrays: dict[str, Array] = {}

    def add(self, name: str, op: Operator, *inputs: str, outputs: int = 1) -> Any:
        """The tensor that a new node makes, or the tensors; they have the node's name."""
        made = (name,) if outputs == 1 else tuple(f"{name}_{i}" for i in range(outputs))
        self._nodes.append(Node(name, op, inputs, made))
        return name if outputs == 1 else made

    def normal(
        self, name: str, shape: tuple[int, ...], deviation: float, around: float = 0
    ) -> str:
        """A parameter of normal values with this standard deviation."""
        values = Tensor(shape, "float64", ("normal",)).array(self._seed, len(self._arrays))
        return self.array(name, around + deviation * values)

    def array(self, name: str, values: Any) -> str:
        """A parameter in the draft's dtype; whole numbers and booleans are constants."""
        array = np.asarray(values)
        self._arrays[name] = array.astype(self._dtype) if array.dtype.kind == "f" else array
        return name

    def linear(self, name: str, x: str, fan_in: int, fan_out: int, gain: float = 1) -> str:
        """x w + b for x (n, fan_in); He et al., arXiv 1502.01852, have gain 2 before a Relu."""
        w = self.normal(f"{name}_w", (fan_in, fan_out), math.sqrt(gain / fan_in))
        b = self.normal(f"{name}_b", (fan_out,), 0.1)
        made: str = self.add(name, Gemm(), x, w, b)
        return made

    def loss(self, scores: str, labels: str) -> str:
        """The mean cross entropy, as the tensor `loss`."""
        op = SoftmaxCrossEntropyLoss()
        made: str = self.add("loss", op, scores, labels)
        return made

    def finished(self, *outputs: str) -> Network:
        """The network with these outputs."""
        parameters = {n: x for n, x in self._arrays.items() if is_float(x.dtype.name)}
        return Network(
            replace(
                self._graph,
                nodes=tuple(self._nodes),
                outputs=outputs,
                parameters=parameters,
                constants={n: x for n, x in self._arrays.items() if n not in parameters},
            )
        )
