"""A graph for inputs of given shapes: what depends on shapes alone becomes a constant, and what
does nothing (an Identity, a Dropout that does not train, a Cast to the dtype that is there) is
left out.

Exporters write shapes as arithmetic (Shape, Gather, Concat, Reshape). For given sizes the result
is known before anything runs, so that no backend needs an operator for it, and a compiler sees
numbers. ONNX's shape inference finds the sizes, its reference evaluates the integers. What rounds
(floating-point arithmetic) is never done here: that is what is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator
from d5test.networks.graph import Graph, Node, Unmodelled, Value
from d5test.networks.model import to_model, to_proto

Shape = tuple[int, ...]

OF_SHAPES = frozenset({"Shape", "Size"})
"""Operators that read the shape of their input, not its values."""
EXACT = frozenset(
    {"Cast", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Gather", "Identity",
     "Range", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
"""Operators that make or move values and round none: of constants, they are constants."""
INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)


def specialised(graph: Graph, shapes: Mapping[str, Shape]) -> Graph:
    """The graph with inputs of these shapes. Raises ValueError if they do not fit it."""
    graph = graph.with_(inputs=_fixed(graph.inputs, shapes))
    graph = _without_identities(graph, _inferred(graph)[1])
    while True:
        found, types = _inferred(graph)
        constants = _folded(graph, found, types)
        if not constants:
            return _needed(graph)
        nodes = tuple(n for n in graph.nodes if not constants.keys() & set(n.makes))
        graph = graph.with_(nodes=nodes, constants={**graph.constants, **constants})


def runnable(graph: Graph) -> list[tuple[Node, Operator]]:
    """The nodes, each with its operator. Raises `Unsupported` if one has no reference."""
    found = [(node, node.op) for node in graph.nodes if isinstance(node.op, Operator)]
    if len(found) < len(graph.nodes):
        raise Unsupported("no reference: " + "; ".join(sorted(graph.unmodelled.values())))
    return found


def _fixed(inputs: Mapping[str, Value], shapes: Mapping[str, Shape]) -> dict[str, Value]:
    """The inputs with the shapes that are fed; a side with a name is the same everywhere."""
    if missing := inputs.keys() - shapes.keys():
        raise ValueError(f"not fed: {', '.join(sorted(missing))}")
    if unknown := shapes.keys() - inputs.keys():
        raise ValueError(f"no input is called {', '.join(sorted(unknown))}")
    sides: dict[str, int] = {}
    for name, value in inputs.items():
        shape = shapes[name]
        fits = len(shape) == len(value.shape) and all(
            size == (side if isinstance(side, int) else sides.setdefault(side, size))
            for side, size in zip(value.shape, shape, strict=False)
        )
        if not fits:
            raise ValueError(f"input {name!r} is {value.shape}, given {shape}")
    return {name: Value(value.dtype, tuple(shapes[name])) for name, value in inputs.items()}


def _without_identities(graph: Graph, types: Mapping[str, int]) -> Graph:
    """Without nodes that hand their input on; their readers read that."""
    read = {tensor for node in graph.nodes for tensor in node.reads}.union(graph.outputs)
    names: dict[str, str] = {}
    for node in graph.nodes:
        if _hands_on(node, graph, read, types):
            x, y = node.inputs[0], node.outputs[0]
            x = names.get(x, x)
            if y not in graph.outputs:
                names[y] = x
            elif x in graph.makers and x not in graph.outputs:
                names = {**{old: y if new == x else new for old, new in names.items()}, x: y, y: y}

    def renamed(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(tensor, tensor) for tensor in tensors)

    nodes = tuple(
        Node(node.name, node.op, renamed(node.inputs), renamed(node.outputs))
        for node in graph.nodes
        if not (names.keys() & {node.outputs[0]} and _hands_on(node, graph, read, types))
    )
    return graph.with_(nodes=nodes)


def _hands_on(node: Node, graph: Graph, read: set[str], types: Mapping[str, int]) -> bool:
    """Whether a node's first output is its first input, and nobody reads another one."""
    if not isinstance(node.op, Unmodelled) or node.op.domain or read & set(node.makes[1:]):
        return False
    training = "".join(node.inputs[2:3])
    off = not training or (training in graph.constants and not graph.constants[training].any())
    if node.kind == "Cast":
        return types.get(node.inputs[0], 0) == types.get(node.outputs[0])
    return node.kind == "Identity" or (node.kind == "Dropout" and off)


def known_shapes(graph: Graph) -> dict[str, Shape]:
    """The shapes of the tensors of a graph whose inputs' are fixed, as far as ONNX infers them."""
    return _inferred(graph)[0]


def _inferred(graph: Graph) -> tuple[dict[str, Shape], dict[str, int]]:
    """The shapes of tensors, as far as all sides are known, and the types of their elements."""
    model = onnx.shape_inference.infer_shapes(to_model(graph, values=False), data_prop=True)
    shapes: dict[str, Shape] = {}
    types: dict[str, int] = {}
    for info in (*model.graph.value_info, *model.graph.input):
        tensor = info.type.tensor_type
        types[info.name] = tensor.elem_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            shapes[info.name] = tuple(d.dim_value for d in tensor.shape.dim)
    shapes |= {name: x.shape for name, x in graph.constants.items()}
    return shapes, types


def _folded(
    graph: Graph, shapes: Mapping[str, Shape], types: Mapping[str, int]
) -> dict[str, Array]:
    """The tensors that are known, and what they are; those of a node all or none."""
    known: dict[str, Array] = dict(graph.constants)
    for node in graph.nodes:
        given = [_given(node, tensor, known, shapes) for tensor in node.reads]
        whole = all(types.get(tensor) in INTEGERS for tensor in node.makes)
        if node.reads and (node.kind in EXACT or whole) and not any(x is None for x in given):
            known |= _evaluated(node, dict(zip(node.reads, given, strict=True)))
    return {name: x for name, x in known.items() if name not in graph.constants}


def _given(
    node: Node, tensor: str, known: Mapping[str, Array], shapes: Mapping[str, Shape]
) -> Array | None:
    if node.kind in OF_SHAPES and tensor in shapes:
        return np.broadcast_to(np.float32(0), shapes[tensor])
    return known.get(tensor)


def _evaluated(node: Node, given: Mapping[str, Any]) -> dict[str, Array]:
    outputs = ReferenceEvaluator(to_proto(node)).run(None, dict(given))
    return {name: np.asarray(y) for name, y in zip(node.makes, outputs, strict=False)}


def _needed(graph: Graph) -> Graph:
    """Without the nodes and arrays on which no output depends."""
    needed, nodes = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.makes):
            nodes.append(node)
            needed.update(node.reads)

    def kept(arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {name: x for name, x in arrays.items() if name in needed}

    return graph.with_(
        nodes=tuple(reversed(nodes)),
        parameters=kept(graph.parameters),
        constants=kept(graph.constants),
    )
