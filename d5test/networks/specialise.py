"""A graph for inputs of given shapes: what depends on shapes alone becomes a constant, and what
does nothing (an Identity, a Dropout that does not train, a Cast to the dtype that is there) is
left out. Of an If whose condition is known so, the branch stands in its place. An operator without
a reference that ONNX defines by others (FlexAttention, whose scores a graph may change) is those.

Exporters write shapes as arithmetic (Shape, Gather, Concat, Reshape). For given sizes the result
is known before anything runs, so that no backend needs an operator for it, and a compiler sees
numbers. ONNX's shape inference finds the sizes, its reference evaluates the integers. What rounds
(floating-point arithmetic) is never done here: that is what is judged.
"""

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import inliner
from onnx.reference import ReferenceEvaluator

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator
from d5test.networks.flow import is_flow
from d5test.networks.graph import Graph, Node, Unmodelled, Value
from d5test.networks.model import from_model, inferred, to_model, to_proto
from d5test.reference.operators import OPERATORS

Shape = tuple[int, ...]

EXACT = frozenset(
    {"Cast", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Gather", "Identity",
     "Range", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
"""Operators that make or move values and round none: of constants, they are constants."""
INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)


def specialised(graph: Graph, shapes: Mapping[str, Shape]) -> Graph:
    """The graph with inputs of these shapes. Raises ValueError if they do not fit it."""
    fixed = _fixed(graph.inputs, shapes)
    graph = _expanded(graph).with_(inputs=fixed)
    before = None
    while graph is not before:
        graph = _without_identities(graph, shapes_and_types(graph)[1])
        while constants := _folded(graph, *shapes_and_types(graph)):
            nodes = tuple(n for n in graph.nodes if not constants.keys() & set(n.makes))
            graph = graph.with_(nodes=nodes, constants={**graph.constants, **constants})
        before, graph = graph, _with_scalars(_with_branches(graph))
    needed, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.makes):
            kept.append(node)
            needed.update(node.reads)
    return graph.with_(nodes=tuple(reversed(kept))).without_arrays({*graph.sources} - needed)


def runnable(graph: Graph) -> list[tuple[Node, Operator]]:
    """The nodes, each with its operator. Raises `Unsupported` if one has no reference."""
    operators = [(node, node.op) for node in graph.nodes if isinstance(node.op, Operator)]
    if len(operators) < len(graph.nodes):
        raise Unsupported("no reference: " + "; ".join(sorted(graph.unmodelled.values())))
    return operators


def _expanded(graph: Graph) -> Graph:
    """With what has no reference, and what ONNX defines by other operators, as those."""
    wanted = {
        (node.op.domain, node.kind)
        for node in graph.nodes
        if isinstance(node.op, Unmodelled) and _has_function(node.kind, node.op.domain)
    }
    if not wanted:
        return graph
    model = to_model(graph)
    for node in model.graph.node:  # the inliner does not know of defaults
        if (node.domain, node.op_type) in wanted:
            there = {attribute.name for attribute in node.attribute}
            formal = onnx.defs.get_schema(node.op_type, domain=node.domain).attributes
            node.attribute.extend(
                attribute.default_value
                for name, attribute in formal.items()
                if attribute.default_value.name and name not in there
            )
    try:
        model = inliner.inline_selected_functions(
            model, sorted(wanted), inline_schema_functions=True
        )
    except RuntimeError:  # an assertion of the inliner's: what it cannot has no reference
        return graph
    return from_model(model).with_(inputs=graph.inputs, declared=graph.declared)


def _with_scalars(graph: Graph) -> Graph:
    """With a number where a Range is given a vector of one, as ONNX's own function AffineGrid has
    it. Without such it is the very same graph.
    """
    if all(node.kind != "Range" for node in graph.nodes):
        return graph
    shapes, _ = shapes_and_types(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        vectors = [x for x in node.inputs if node.kind == "Range" and shapes.get(x) == (1,)]
        names = {x: f"{node.name}/{x}" for x in vectors}
        nodes += [Node(y, OPERATORS["Squeeze"](), (x,), (y,)) for x, y in names.items()]
        inputs = tuple(names.get(x, x) for x in node.inputs)
        nodes.append(replace(node, inputs=inputs) if names else node)
    return graph if len(nodes) == len(graph.nodes) else graph.with_(nodes=tuple(nodes))


def _has_function(kind: str, domain: str) -> bool:
    """Whether ONNX defines an operator by others, and control flow is none of them."""
    if is_flow(kind, domain) or not onnx.defs.has(kind, domain):
        return False
    schema: Any = onnx.defs.get_schema(kind, domain=domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _with_branches(graph: Graph) -> Graph:
    """With the nodes of a branch in place of each If whose condition is known.

    Their names begin with that of the If, as those of its parameters and constants do. Without
    such an If it is the very same graph.
    """
    nodes: list[Node] = []
    arrays: dict[str, Array] = {}
    for node in graph.nodes:
        known = graph.constants.get(node.inputs[0]) if node.kind == "If" else None
        if known is None or known.size != 1 or not isinstance(node.op, Unmodelled):
            nodes.append(node)
            continue
        branch = node.op.bodies["then_branch" if known.all() else "else_branch"]
        names = {name: f"{node.name}/{name}" for name in (*branch.makers, *branch.sources)}
        if any(names.keys() & {*inner.captured} for inner in branch.nodes):
            nodes.append(node)  # a body in the branch knows its tensors by their names
            continue
        nodes += [_renamed(inner, names, f"{node.name}/{inner.name}") for inner in branch.nodes]
        nodes += [
            Node(f"{node.name}/{y}", OPERATORS["Identity"](), (names.get(x, x),), (y,))
            for x, y in zip(branch.outputs, node.outputs, strict=True)
        ]
        own = {**branch.parameters, **branch.constants}
        arrays |= {names[name]: x for name, x in own.items()}
    if all(map(operator.is_, nodes, graph.nodes)):
        return graph
    return graph.with_(nodes=tuple(nodes)).with_arrays(arrays)


def _renamed(node: Node, names: Mapping[str, str], name: str) -> Node:
    """The node under another name, on tensors under other names."""
    inputs, outputs = (tuple(names.get(t, t) for t in ts) for ts in (node.inputs, node.outputs))
    return Node(name, node.op, inputs, outputs)


def _fixed(inputs: Mapping[str, Value], shapes: Mapping[str, Shape]) -> dict[str, Value]:
    """The inputs with the shapes that are fed; a side with a name is the same everywhere."""
    if missing := {name for name, value in inputs.items() if not value.within} - shapes.keys():
        raise ValueError(f"not fed: {', '.join(sorted(missing))}")
    if unknown := shapes.keys() - inputs.keys():
        raise ValueError(f"no input is called {', '.join(sorted(unknown))}")
    sides: dict[str, int] = {}
    for name, shape in shapes.items():
        value = inputs[name]
        fits = len(shape) == len(value.shape) and all(
            size == (side if isinstance(side, int) else sides.setdefault(side, size))
            for side, size in zip(value.shape, shape, strict=False)
        )
        if not fits:
            raise ValueError(f"input {name!r} is {value.shape}, given {shape}")
    return {
        name: Value(value.dtype, tuple(shapes[name])) if name in shapes else value
        for name, value in inputs.items()
    }


def _without_identities(graph: Graph, types: Mapping[str, int]) -> Graph:
    """Without nodes that hand their input on; their readers read that."""
    read = {tensor for node in graph.nodes for tensor in node.reads}.union(graph.outputs)
    captured = {tensor for node in graph.nodes for tensor in node.captured}  # keep their names
    names: dict[str, str] = {}
    kept = []
    for node in graph.nodes:
        x, y = "".join(node.inputs[:1]), "".join(node.outputs[:1])
        x = names.get(x, x)
        if not _hands_on(node, graph, read, types) or captured & {x, y}:
            kept.append(node)
        elif y not in graph.outputs:
            names[y] = x
        elif x in graph.makers and x not in graph.outputs:
            names = {**{old: y if new == x else new for old, new in names.items()}, x: y, y: y}
        else:
            kept.append(node)

    return graph.with_(nodes=tuple(_renamed(node, names, node.name) for node in kept))


def _hands_on(node: Node, graph: Graph, read: set[str], types: Mapping[str, int]) -> bool:
    """Whether a node's first output is its first input, and nobody reads another one."""
    if node.op.domain or read & set(node.makes[1:]):
        return False
    if node.kind in ("Cast", "CastLike"):
        return types.get(node.inputs[0], 0) == types.get(node.outputs[0])
    if node.kind == "Identity":
        return True
    training = "".join(node.inputs[2:3])
    off = not training or (training in graph.constants and not graph.constants[training].any())
    return node.kind == "Dropout" and off


def shapes_and_types(graph: Graph) -> tuple[dict[str, Shape], dict[str, int]]:
    """The shapes of tensors, as far as all sides are known, and the types of their elements."""
    tensors = {name: info.type.tensor_type for name, info in inferred(graph).items()}
    shapes = {
        name: tuple(d.dim_value for d in tensor.shape.dim)
        for name, tensor in tensors.items()
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
    }
    shapes |= {name: x.shape for name, x in graph.constants.items()}
    return shapes, {name: tensor.elem_type for name, tensor in tensors.items()}


def _folded(
    graph: Graph, shapes: Mapping[str, Shape], types: Mapping[str, int]
) -> dict[str, Array]:
    """The tensors that are known, and what they are; those of a node all or none."""
    known: dict[str, Array] = dict(graph.constants)
    for node in graph.nodes:
        inputs = {name: known[name] for name in node.reads if name in known}
        if node.kind in ("Shape", "Size"):  # they read the shape of their input, not its values
            zero = np.float32(0)
            inputs |= {x: np.broadcast_to(zero, shapes[x]) for x in node.reads if x in shapes}
        whole = all(types.get(tensor) in INTEGERS for tensor in node.makes)
        if node.reads and (node.kind in EXACT or whole) and len(inputs) == len({*node.reads}):
            if isinstance(node.op, Unmodelled) and node.op.bodies:
                continue
            if isinstance(node.op, Operator) and node.op.random:
                continue
            outputs = ReferenceEvaluator(to_proto(node)).run(None, inputs)
            known |= {name: np.asarray(y) for name, y in zip(node.makes, outputs, strict=False)}
    return {name: x for name, x in known.items() if name not in graph.constants}
