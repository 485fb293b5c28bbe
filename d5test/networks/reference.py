"""A graph run by its references, forward and backward, on NumPy arrays of any kind.

Plain float64, or arrays that carry noise or round: `lift` turns the network's own arrays into
them. An upstream gradient is the sum of what comes back from all readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from d5test.case import Array, Operator
from d5test.networks.graph import Graph, Node
from d5test.networks.specialise import runnable

Lift = Callable[[Array], Any]


class Pass:
    """One pass over a graph. `values` has every tensor that was met, by name."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Array], lift: Lift) -> None:
        self._nodes = runnable(graph)
        self._lift = lift
        arrays = {**graph.constants, **graph.parameters, **inputs}
        self.values: dict[str, Any] = {name: self._lifted(x) for name, x in arrays.items()}
        self._outputs: dict[str, tuple[Any, ...]] = {}

    def forward(self) -> Iterator[Node]:
        """Run the nodes; each is yielded when its outputs are there."""
        for node, op in self._nodes:
            with np.errstate(all="ignore"):
                outputs = op(*self._given(node))
            self._outputs[node.name] = outputs
            self.values |= {
                name: y for name, y in zip(node.outputs, outputs, strict=False) if name
            }
            yield node

    def backward(self, upstream: Mapping[str, Array]) -> dict[str, Any]:
        """The gradients of all tensors that the outputs named by `upstream` depend on."""
        grads = {name: self._lifted(dy) for name, dy in upstream.items()}
        for node, op in reversed(self._nodes):
            dys = tuple(grads.get(name) if name else None for name in node.outputs)
            if not op.differentiable or all(dy is None for dy in dys):
                continue
            with np.errstate(all="ignore"):
                found = op.vjp(dys, self._given(node), self._outputs[node.name])
            for name, dx in zip(node.inputs, found, strict=False):
                if name and dx is not None:
                    grads[name] = grads[name] + dx if name in grads else dx
        return grads

    def _given(self, node: Node) -> tuple[Any, ...]:
        return tuple(self.values[name] if name else None for name in node.inputs)

    def _lifted(self, x: Array) -> Any:
        return self._lift(double(x)) if x.dtype.kind in "fV" else x


def in_double(graph: Graph) -> Graph:
    """The same graph with its arrays in float64, converted once for many passes."""
    arrays = (graph.parameters, graph.constants)
    parameters, constants = ({name: double(x) for name, x in kind.items()} for kind in arrays)
    return graph.with_(parameters=parameters, constants=constants)


def double(x: Array) -> Array:
    """Floating-point numbers in float64: the array itself if it is, or holds other things."""
    return x.astype(np.float64, copy=False) if x.dtype.kind in "fV" else x


def upstream_of(loss: str, values: Mapping[str, Any]) -> dict[str, Array]:
    """The upstream gradient of a loss: 1."""
    return {loss: np.ones(np.shape(values[loss]))}


def differentiable(nodes: list[tuple[Node, Operator]]) -> bool:
    """Whether every operator has a gradient."""
    return all(op.differentiable for _, op in nodes)
