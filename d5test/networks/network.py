"""A network that is edited one sound step at a time.

    network = Network("model.onnx")                    a path, a ModelProto, or a Graph
    network = Network.empty("mlp", x=Value("float32", ("n", 784)))
    network.add_node("fc", Gemm(transB=1), ("x", "w", "b"), ("h",), w=weights, b=biases)
    network.add_output("h")

Each edit is made on a copy and checked; one that would break the graph raises `BrokenGraph`, with
the node's name, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np
import onnx

from d5test.case import Array, Operator, is_float
from d5test.networks import model
from d5test.networks.check import checked
from d5test.networks.graph import BrokenGraph, Graph, Node, Value


class Network:
    """An ONNX graph with its parameters. `graph` is what it is now: replaced, never changed."""

    graph: Graph

    def __init__(self, source: str | os.PathLike[str] | onnx.ModelProto | Graph) -> None:
        if isinstance(source, Graph):
            self.graph = checked(source)
            return
        try:
            if not isinstance(source, onnx.ModelProto):
                source = model.read(source)
            self.graph = checked(model.from_model(source))
        except model.BROKEN as error:
            why = " ".join(str(error).split())
            raise BrokenGraph(f"the model is broken: {type(error).__name__}: {why}") from error

    @classmethod
    def empty(cls, name: str, **inputs: Value) -> Self:
        """A network of inputs alone, to which nodes are added; it has no output yet."""
        made = cls.__new__(cls)
        made.graph = Graph(name, (), inputs, ())
        return made

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.graph.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in an order in which they can run."""
        return self.graph.nodes

    @property
    def inputs(self) -> Mapping[str, Value]:
        """What is fed."""
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results."""
        return self.graph.outputs

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the floating-point arrays that are learned."""
        return tuple(self.graph.parameters)

    def fetch(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Copies of parameters, all if none is named. Raises KeyError with the name."""
        return {name: self._parameter(name).copy() for name in names or self.parameters}

    def feed(self, name: str, values: Array) -> None:
        """New values of a parameter, of its shape and dtype. Raises KeyError or ValueError."""
        old, new = self._parameter(name), np.array(values)
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ValueError(
                f"parameter {name!r} is {old.dtype.name} {old.shape}, "
                f"given {new.dtype.name} {new.shape}"
            )
        self.graph = self.graph.with_(parameters={**self.graph.parameters, name: new})

    def add_node(
        self,
        name: str,
        op: Operator,
        inputs: Sequence[str],
        outputs: Sequence[str],
        **arrays: Array,
    ) -> None:
        """A node behind those whose outputs it reads, with the arrays that are new to it.

        Floating-point arrays are parameters, others constants.
        """
        parameters = {n: x for n, x in arrays.items() if is_float(x.dtype.name)}
        constants = {n: x for n, x in arrays.items() if n not in parameters}
        node = Node(name, op, tuple(inputs), tuple(outputs))
        for tensor in arrays:
            if tensor not in node.inputs:
                raise BrokenGraph(f"does not read {tensor!r}, which is given with it", name)
            if tensor in {*self.graph.makers, *self.graph.sources}:
                raise BrokenGraph(f"brings {tensor!r}, which is there already", name)
        self._change(
            self.graph.with_(
                nodes=(*self.nodes, node),
                parameters={**self.graph.parameters, **parameters},
                constants={**self.graph.constants, **constants},
            )
        )

    def remove_node(self, name: str) -> None:
        """A node, and the parameters and constants that nothing else reads.

        Refused while another node, or the network's results, need what it makes.
        """
        node = self._node(name)
        for tensor in node.makes:
            needs = [n.name for n in self.graph.readers(tensor)]
            needs += ["the network's outputs"] * (tensor in self.outputs)
            if needs:
                raise BrokenGraph(f"makes {tensor!r}, which {', '.join(needs)} need", name)
        rest = tuple(n for n in self.nodes if n.name != name)
        read = {tensor for n in rest for tensor in n.reads}.union(self.outputs)
        orphans = set(node.reads) - read

        def kept(arrays: Mapping[str, Array]) -> dict[str, Array]:
            return {n: x for n, x in arrays.items() if n not in orphans}

        self._change(
            self.graph.with_(
                nodes=rest,
                parameters=kept(self.graph.parameters),
                constants=kept(self.graph.constants),
            )
        )

    def add_edge(self, tensor: str, node: str, position: int) -> None:
        """Let a node read a tensor as its input `position`, instead of what it reads there."""
        found = self._node(node)
        if position < 0:
            raise BrokenGraph(f"has no input {position}", node)
        inputs = [*found.inputs, *[""] * (position + 1 - len(found.inputs))]
        inputs[position] = tensor
        self._change(self.graph.with_node(_reading(found, inputs)))

    def remove_edge(self, tensor: str, node: str) -> None:
        """Let a node no longer read a tensor; refused where the operator cannot do without it."""
        found = self._node(node)
        if tensor not in found.reads:
            raise BrokenGraph(f"does not read {tensor!r}, only {', '.join(found.reads)}", node)
        inputs = ["" if given == tensor else given for given in found.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        self._change(self.graph.with_node(_reading(found, inputs)))

    def add_output(self, tensor: str) -> None:
        """Make a tensor one of the network's results."""
        if tensor in self.outputs:
            raise BrokenGraph(f"{tensor!r} is an output already")
        self._change(self.graph.with_(outputs=(*self.outputs, tensor)))

    def remove_output(self, tensor: str) -> None:
        """Let a tensor no longer be one of the network's results; the last one stays."""
        if tensor not in self.outputs:
            raise BrokenGraph(f"{tensor!r} is no output, only {', '.join(self.outputs)}")
        self._change(self.graph.with_(outputs=tuple(o for o in self.outputs if o != tensor)))

    def copy(self) -> Network:
        """The same network, to be edited by itself."""
        made = Network.__new__(Network)
        made.graph = self.graph
        return made

    def to_model(self) -> onnx.ModelProto:
        """The network as an ONNX model."""
        return model.to_model(self.graph)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ONNX file, parameters inside."""
        model.write(self.graph, path)

    def _change(self, graph: Graph) -> None:
        self.graph = checked(graph)

    def _node(self, name: str) -> Node:
        try:
            return self.graph.node(name)
        except KeyError:
            raise BrokenGraph(f"{self.name} has no such node", name) from None

    def _parameter(self, name: str) -> Array:
        if name not in self.graph.parameters:
            raise KeyError(f"{self.name} has no parameter {name!r}")
        return self.graph.parameters[name]


def _reading(node: Node, inputs: Iterable[str]) -> Node:
    return Node(node.name, node.op, tuple(inputs), node.outputs)
