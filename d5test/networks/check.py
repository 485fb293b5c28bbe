"""What makes a graph whole, and the node that breaks it by name.

First the structure (names, origins, order), then ONNX's own checker and strict shape inference,
on a model without the parameters' values: large weights cost an edit nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import onnx

from d5test.networks.graph import BrokenGraph, Graph, Node
from d5test.networks.model import to_model

NODE = re.compile(r"node name: (?P<inferred>[^)]+)\)|node\. Name: (?P<checked>.+) OpType:")
"""How ONNX names a node in what it raises: its shape inference, and its checker."""
SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


def checked(graph: Graph) -> Graph:
    """The same graph with its nodes in an order in which they can run. Raises `BrokenGraph`.

    A graph that is being built may have no output yet.
    """
    _named_once(graph)
    ordered = graph.with_(nodes=_in_order(graph))
    for output in graph.outputs:
        if output not in {*graph.makers, *graph.sources}:
            raise BrokenGraph(f"the network's output {output!r} is made by no node")
    for node in ordered.nodes:
        _complete(node)
    _accepted(ordered)
    return ordered


def _named_once(graph: Graph) -> None:
    names = Counter(node.name for node in graph.nodes)
    for name, count in names.items():
        if not name or count > 1:
            raise BrokenGraph(
                f"{count} nodes have this name" if name else "a node has no name", name
            )
    origins = Counter(graph.sources)
    for node in graph.nodes:
        for tensor in node.makes:
            if origins[tensor]:
                raise BrokenGraph(f"makes {tensor!r}, which is there already", node.name)
            origins[tensor] += 1
    for tensor, count in origins.items():
        if count > 1:
            raise BrokenGraph(f"{count} tensors are called {tensor!r}")


def _in_order(graph: Graph) -> tuple[Node, ...]:
    """The nodes, each behind those whose outputs it reads; otherwise as they stand."""
    for node in graph.nodes:
        for tensor in node.reads:
            if tensor not in graph.makers and tensor not in set(graph.sources):
                raise BrokenGraph(f"reads {tensor!r}, which nothing makes", node.name)
    there, ordered, waiting = set(graph.sources), [], list(graph.nodes)
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


def _circle(nodes: Iterable[Node]) -> list[Node]:
    """Nodes that wait for each other, without those that only wait for them."""
    left = list(nodes)
    while True:
        read = {tensor for node in left for tensor in node.reads}
        kept = [node for node in left if read.intersection(node.makes)]
        if len(kept) == len(left):
            return kept
        left = kept


def _complete(node: Node) -> None:
    """Raise `BrokenGraph` if a node lacks an input that its operator cannot do without."""
    if node.op.domain or not onnx.defs.has(node.kind):
        return
    for i, formal in enumerate(onnx.defs.get_schema(node.kind).inputs):
        if formal.option == SINGLE and not "".join(node.inputs[i : i + 1]):
            raise BrokenGraph(f"{node.kind} needs its input {i}, {formal.name}", node.name)


def _accepted(graph: Graph) -> None:
    """Ask ONNX. Raises `BrokenGraph`."""
    model = to_model(graph, values=False)
    try:
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        told = " ".join(str(error).split()).split(" (op_type:")
        text = " (op_type:".join(told[:2])  # the first node; what follows, follows from it
        named = NODE.search(text)
        raise BrokenGraph(text, named[named.lastgroup or 0] if named else "") from None
