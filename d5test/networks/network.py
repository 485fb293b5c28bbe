"""A network that is edited one sound step at a time.

    network = Network("model.onnx")                    a path, a ModelProto, or a Graph
    network = Network.empty("mlp", x=Value("float32", ("n", 784)))
    network.add_node("fc", Gemm(transB=1), ("x", "w", "b"), ("h",), w=weights, b=biases)
    network.add_output("h")

Each edit is made on a copy and checked; one that would break the graph raises `BrokenGraph`, with
the node's name, and changes nothing. First the structure is checked (names, origins, order), then
ONNX's own checker and strict shape inference are asked, on a model without the parameters' values:
large weights cost an edit nothing.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np
import onnx

from d5test import files
from d5test.case import Array, Operator
from d5test.networks import model
from d5test.networks.graph import BrokenGraph, Graph, Node, Unmodelled, Value

NODE = re.compile(r"node name: (?P<inferred>[^)]+)\)|node\. Name: (?P<checked>.+) OpType:")
"""How ONNX names a node in what it raises: its shape inference, and its checker."""


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
        return cls.of(Graph(name, (), inputs, ()))

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The network of a graph that was checked."""
        network = cls.__new__(cls)
        network.graph = graph
        return network

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
        node = Node(name, op, tuple(inputs), tuple(outputs))
        for tensor in arrays:
            if tensor not in node.inputs:
                raise BrokenGraph(f"does not read {tensor!r}, which is given with it", name)
            if tensor in {*self.graph.makers, *self.graph.sources}:
                raise BrokenGraph(f"brings {tensor!r}, which is there already", name)
        self.graph = checked(self.graph.with_(nodes=(*self.nodes, node)).with_arrays(arrays))

    def remove_node(self, name: str) -> None:
        """A node, and the parameters and constants that nothing else reads.

        Refused while another node, or the network's results, need what it makes.
        """
        node = self.graph.node(name)
        for tensor in node.makes:
            needs = [n.name for n in self.nodes if tensor in n.reads]
            needs += ["the network's outputs"] * (tensor in self.outputs)
            if needs:
                raise BrokenGraph(f"makes {tensor!r}, which {', '.join(needs)} need", name)
        rest = tuple(n for n in self.nodes if n.name != name)
        read = {tensor for n in rest for tensor in n.reads}.union(self.outputs)
        self.graph = checked(self.graph.with_(nodes=rest).without_arrays({*node.reads} - read))

    def add_edge(self, tensor: str, node: str, position: int) -> None:
        """Let a node read a tensor as its input `position`, instead of what it reads there."""
        reader = self.graph.node(node)
        if position < 0:
            raise BrokenGraph(f"has no input {position}", node)
        inputs = [*reader.inputs, *[""] * (position + 1 - len(reader.inputs))]
        inputs[position] = tensor
        self.graph = checked(self.graph.with_node(replace(reader, inputs=tuple(inputs))))

    def remove_edge(self, tensor: str, node: str) -> None:
        """Let a node no longer read a tensor; refused where the operator cannot do without it."""
        reader = self.graph.node(node)
        if tensor not in reader.inputs:
            reads = ", ".join(filter(None, reader.inputs))
            raise BrokenGraph(f"does not read {tensor!r}, only {reads}", node)
        inputs = ["" if name == tensor else name for name in reader.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        self.graph = checked(self.graph.with_node(replace(reader, inputs=tuple(inputs))))

    def add_output(self, tensor: str) -> None:
        """Make a tensor one of the network's results."""
        if tensor in self.outputs:
            raise BrokenGraph(f"{tensor!r} is an output already")
        self.graph = checked(self.graph.with_(outputs=(*self.outputs, tensor)))

    def remove_output(self, tensor: str) -> None:
        """Let a tensor no longer be one of the network's results; the last one stays."""
        if tensor not in self.outputs:
            raise BrokenGraph(f"{tensor!r} is not an output, only {', '.join(self.outputs)}")
        others = tuple(output for output in self.outputs if output != tensor)
        self.graph = checked(self.graph.with_(outputs=others))

    def copy(self) -> Network:
        """The same network, to be edited by itself."""
        return copy(self)

    def to_model(self) -> onnx.ModelProto:
        """The network as an ONNX model."""
        return model.to_model(self.graph)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ONNX file, parameters inside."""
        files.replace(path, self.to_model().SerializeToString())

    def _parameter(self, name: str) -> Array:
        if name not in self.graph.parameters:
            raise KeyError(f"{self.name} has no parameter {name!r}")
        return self.graph.parameters[name]


def checked(graph: Graph) -> Graph:
    """The same graph with its nodes in an order in which they can run. Raises `BrokenGraph`.

    A graph that is being built may have no output yet.
    """
    _named_once(graph)
    ordered = graph.with_(nodes=_in_order(graph))
    for output in graph.outputs:
        if output not in {*graph.makers, *graph.sources}:
            raise BrokenGraph(f"the network's output {output!r} is made by no node")
    ordered = ordered.with_(nodes=tuple(_with_bodies(node) for node in ordered.nodes))
    _accepted(ordered)
    return ordered


def _with_bodies(node: Node) -> Node:
    """A node that has what it needs, and the nodes of its bodies in an order.

    What a body reads of the graphs around it is there: its node reads it. Raises `BrokenGraph`.
    """
    _complete(node)
    if not isinstance(node.op, Unmodelled) or not node.op.bodies:
        return node
    bodies = {}
    for name, body in node.op.bodies.items():
        try:
            _named_once(body)
            inner = tuple(map(_with_bodies, _in_order(body, body.captured)))
        except BrokenGraph as error:
            raise BrokenGraph(f"{name}: {error}", node.name) from None
        bodies[name] = body.with_(nodes=inner)
    return replace(node, op=replace(node.op, bodies=bodies))


def _named_once(graph: Graph) -> None:
    for name, count in Counter(node.name for node in graph.nodes).items():
        if not name:
            raise BrokenGraph("a node has no name")
        if count > 1:
            raise BrokenGraph(f"{count} nodes have this name", name)
    origins = Counter(graph.sources)
    for node in graph.nodes:
        for tensor in node.makes:
            if origins[tensor]:
                raise BrokenGraph(f"makes {tensor!r}, which is there already", node.name)
            origins[tensor] += 1
    for tensor, count in origins.items():
        if count > 1:
            raise BrokenGraph(f"{count} tensors are called {tensor!r}")


def _in_order(graph: Graph, around: Iterable[str] = ()) -> tuple[Node, ...]:
    """The nodes, each behind those whose outputs it reads; otherwise as they stand."""
    there, ordered, waiting = {*graph.sources, *around}, [], list(graph.nodes)
    for node in waiting:
        for tensor in node.reads:
            if tensor not in graph.makers and tensor not in there:
                raise BrokenGraph(f"reads {tensor!r}, which nothing makes", node.name)
    while waiting:
        later = []
        for node in waiting:
            if there.issuperset(node.reads):
                ordered.append(node)
                there.update(node.makes)
            else:
                later.append(node)
        if len(later) == len(waiting):
            circle = ", ".join(node.name for node in _circle(later))
            raise BrokenGraph(f"waits for its own output, through {circle}", later[0].name)
        waiting = later
    return tuple(ordered)


def _circle(nodes: list[Node]) -> list[Node]:
    """Nodes that wait for each other, without those that only wait for them."""
    read = {tensor for node in nodes for tensor in node.reads}
    waited_for = [node for node in nodes if read.intersection(node.makes)]
    return nodes if len(waited_for) == len(nodes) else _circle(waited_for)


def _complete(node: Node) -> None:
    """Raise `BrokenGraph` if a node lacks an input that its operator cannot do without."""
    if node.op.domain or not onnx.defs.has(node.kind):
        return
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for i, formal in enumerate(onnx.defs.get_schema(node.kind).inputs):
        if formal.option == single and not "".join(node.inputs[i : i + 1]):
            raise BrokenGraph(f"{node.kind} needs its input {i}, {formal.name}", node.name)


def _accepted(graph: Graph) -> None:
    """Ask ONNX. Raises `BrokenGraph`."""
    bare = model.to_model(graph, values=False)
    plain = not any(isinstance(n.op, Unmodelled) and n.op.bodies for n in graph.nodes)
    try:  # in a body of a body, ONNX takes a value that it meets again for an error
        onnx.checker.check_model(bare)
        onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=plain)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        nodes = " ".join(str(error).split()).split(" (op_type:")
        reason = " (op_type:".join(nodes[:2])  # the first node; what follows, follows from it
        named = NODE.search(reason)
        raise BrokenGraph(reason, named[named.lastgroup or 0] if named else "") from None
