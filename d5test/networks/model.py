"""ONNX models to graphs and back; files read so that a model cannot reach outside its folder.

A model in an older operator set than `OPSET` is converted to that by ONNX's own converter, its
functions are inlined, and its Constant nodes become constants.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import external_data_helper, helper, inliner, numpy_helper, version_converter
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError
from onnx.version_converter import ConvertError

from d5test.case import Array, Operator, dtype_of, is_float
from d5test.networks.flow import BESIDE, is_flow
from d5test.networks.graph import OPSET, BrokenGraph, Graph, Node, Unmodelled, Value
from d5test.reference.node import DOMAINS, NotModelled, from_node, to_node

HOLDERS = {
    "optional": helper.make_optional_type_proto, "sequence": helper.make_sequence_type_proto,
}  # fmt: skip
GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
NEWEST = onnx.defs.onnx_opset_version()
UNCONVERTED = {"PRelu"}
"""Operators that onnx's converter hands on as they are, although an older version means another
thing."""
MORE = 512 << 20
"""Bytes of data that tensors may share: as many more than their files have."""
BROKEN = (
    ValidationError, InferenceError, ConvertError, DecodeError, EncodeError, LookupError,
    TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError, RecursionError,
)  # fmt: skip
"""What ONNX and NumPy raise, beside ValueError, of a model that is none."""


class UnsafeModel(ValueError):
    """A model file that asks for data outside its own folder, or beyond the end of its data."""


def read(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The model in a file, with its external data. Raises `UnsafeModel`, OSError or ValueError."""
    file = Path(path)
    try:
        model = onnx.load(file, load_external_data=False)
    except DecodeError as error:
        raise ValueError(f"{file} is not an ONNX model: {error}") from None
    folder = file.resolve().parent
    wanted, stored = 0, {}
    for tensor in _external(model):
        target, count = _inside(folder, tensor, file)
        wanted += count
        status = target.stat()
        stored[target] = min(status.st_size, status.st_blocks * 512)  # a sparse file takes less
    held = sum(stored.values())
    if wanted > held + MORE:
        raise UnsafeModel(f"{file}: its tensors want {wanted} bytes of files that hold {held}")
    try:
        onnx.load_external_data_for_model(model, str(folder))
    except ValueError as error:
        raise UnsafeModel(f"{file}: {error}") from None
    return model


def from_model(model: onnx.ModelProto) -> Graph:
    """The graph of a model. Raises `BrokenGraph`, `UnsafeModel` or ValueError."""
    if _external(model):
        raise UnsafeModel("the model's data lie in other files: give its path, not the ModelProto")
    version = _version(model)
    model = _converted(model)
    proto = model.graph
    if not model.HasField("graph"):
        raise BrokenGraph("the model has no graph")
    opsets = {DOMAINS.get(o.domain, o.domain): o.version for o in model.opset_import}
    return _graph(proto, version, opsets)


def _graph(proto: onnx.GraphProto, was: int, opsets: Mapping[str, int]) -> Graph:
    """A graph, or a body, of a model that `was` in another version of ONNX's operator set."""
    if sides := [t.name for t in proto.initializer if any(side < 0 for side in t.dims)]:
        raise BrokenGraph(f"the tensor {sides[0]!r} has a side below zero")
    if proto.sparse_initializer:
        raise BrokenGraph("sparse initializers are not supported")
    arrays = {t.name: numpy_helper.to_array(t) for t in proto.initializer}
    nodes, names = [], {node.name for node in proto.node}
    for node in proto.node:
        if node.op_type == "Constant" and not node.domain:
            arrays[node.output[0]] = _constant(node)
        else:
            nodes.append(_with_vector(_node(node, _name(node, names), was, opsets), arrays))
    return Graph(
        name=proto.name or "network",
        nodes=tuple(nodes),
        inputs={v.name: _value(v) for v in proto.input if v.name not in arrays},
        outputs=tuple(v.name for v in proto.output),
        opsets=opsets,
        declared={v.name: _value(v) for v in proto.output if v.type.WhichOneof("value")},
    ).with_arrays(arrays)


def to_model(graph: Graph, *, values: bool = True) -> onnx.ModelProto:
    """The model of a graph.

    Without `values` it is there to be checked: what is not integer is an input of its shape,
    and there are no outputs, whose types only a sound graph tells.
    """
    inputs = [_info(name, value) for name, value in graph.inputs.items()]
    outputs = []
    arrays = {**graph.parameters, **graph.constants}
    if values:  # runtimes want an output's dtype and shape said
        tensors = inferred(graph)
        outputs = [tensors.get(name, onnx.ValueInfoProto(name=name)) for name in graph.outputs]
        for info in outputs:
            said = graph.declared.get(info.name)
            if said and said.dtype and not info.type.tensor_type.HasField("shape"):
                info.CopyFrom(_info(info.name, said))
    else:
        bare = {name: x for name, x in arrays.items() if is_float(x.dtype.name)}
        inputs += [_info(name, Value(x.dtype.name, x.shape)) for name, x in bare.items()]
        arrays = {name: x for name, x in arrays.items() if name not in bare}
    proto = helper.make_graph(
        [to_proto(node) for node in graph.nodes],
        graph.name,
        inputs,
        outputs,
        [numpy_helper.from_array(np.asarray(x, order="C"), name) for name, x in arrays.items()],
    )
    opsets = dict(graph.opsets)
    for node in graph.nodes:
        if not isinstance(node.op, Unmodelled) and node.op.domain:
            opsets.setdefault(node.op.domain, 1)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(
        proto,
        opset_imports=imports,
        ir_version=max(4, helper.find_min_ir_version_for([o for o in imports if not o.domain])),
        producer_name="d5test",
    )


def inferred(graph: Graph) -> dict[str, onnx.ValueInfoProto]:
    """The dtypes and shapes of a graph's tensors by name, as far as ONNX infers them."""
    model = onnx.shape_inference.infer_shapes(to_model(graph, values=False), data_prop=True)
    return {info.name: info for info in (*model.graph.value_info, *model.graph.input)}


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in `OPSET`, or a newer one that it is in, without functions.

    One with a Scan of version 8 stays in its own: the converter forgets the batch.
    """
    if model.functions:
        model = inliner.inline_local_functions(model, convert_version=True)
    version = _version(model)
    if version > NEWEST:
        raise ValueError(f"the model is in operator set {version}; {NEWEST} is the newest known")
    if version < OPSET and not (
        version < 9 and any(n.op_type == "Scan" for n in _every(model.graph.node))
    ):
        try:
            model = version_converter.convert_version(model, OPSET)
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"operator set {version} cannot be read as {OPSET}: {text}") from None
    return model


def _version(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operator set that a model imports."""
    versions = {DOMAINS.get(o.domain, o.domain): o.version for o in model.opset_import}
    return int(versions.get("", OPSET))


def _name(node: onnx.NodeProto, names: set[str]) -> str:
    """A node's name; a name that is missing is made of its first output's."""
    if node.name:
        return str(node.name)
    name = f"{node.op_type}_{node.output[0]}"
    while name in names:
        name += "_"
    names.add(name)
    return name


def _node(node: onnx.NodeProto, name: str, was: int, opsets: Mapping[str, int]) -> Node:
    """A node under this name."""
    domain = DOMAINS.get(node.domain, node.domain)
    opset = was if node.op_type in UNCONVERTED else opsets.get(domain, OPSET)
    bodies: dict[str, Graph] = {}
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = _attribute(attribute, attribute.name, name)
        if attribute.type not in GRAPHS:
            attributes[attribute.name] = value
            continue
        for i, graph in enumerate((value,) if attribute.type == GRAPHS[0] else value):
            bodies[f"{attribute.name}{i or ''}"] = _graph(graph, was, opsets)
    op: Operator | Unmodelled
    try:
        if bodies:
            raise NotModelled(f"attribute {next(iter(bodies))} is a graph")
        op = from_node(node, opset)
    except NotModelled as why:
        reason = f"{node.op_type}: {BESIDE if is_flow(node.op_type, node.domain) else why}"
        proto = node.SerializeToString()
        op = Unmodelled(node.op_type, proto, reason, node.domain, opset, attributes, bodies)
    return Node(name, op, tuple(node.input), tuple(node.output))


def _with_vector(node: Node, arrays: dict[str, Array]) -> Node:
    """A node whose axes are no number but a vector, as ONNX's text has it, and not its tests."""
    if node.kind not in ("Squeeze", "Unsqueeze") or not node.inputs[1:]:
        return node
    x, axes = node.inputs
    if axes not in arrays or arrays[axes].ndim:
        return node
    arrays[f"{axes}_vector"] = arrays[axes].reshape(1)
    return replace(node, inputs=(x, f"{axes}_vector"))


def to_proto(node: Node) -> onnx.NodeProto:
    """The node as ONNX has it."""
    if not isinstance(node.op, Unmodelled):
        return to_node(node.op, node.inputs, node.outputs, node.name)
    proto = onnx.NodeProto()
    proto.ParseFromString(node.op.proto)
    del proto.input[:], proto.output[:]
    proto.name = node.name
    proto.input.extend(node.inputs)
    proto.output.extend(node.outputs)
    return proto


def _attribute(attribute: onnx.AttributeProto, what: str, node: str) -> Any:
    """The value of an attribute, called `what` where it has none."""
    if attribute.ref_attr_name:
        of_a_function = f"{what} is the attribute {attribute.ref_attr_name!r} of a function"
        raise BrokenGraph(f"{of_a_function}, and stands in none", node)
    return helper.get_attribute_value(attribute)


def _constant(node: onnx.NodeProto) -> Array:
    (attribute,) = node.attribute
    value = _attribute(attribute, "a constant", node.name)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    if attribute.name.startswith("value_float"):
        return np.asarray(value, np.float32)
    if attribute.name.startswith("value_int"):
        return np.asarray(value, np.int64)
    raise BrokenGraph(f"a constant of {attribute.name!r} is not supported", node.name)


def _value(info: onnx.ValueInfoProto) -> Value:
    """Dtype and shape; a side without a size has its name, or one of its own.

    What a body is given may have no dtype.
    """
    kind, within = info.type, list[str]()
    while (what := kind.WhichOneof("value")) in ("optional_type", "sequence_type"):
        within.append(what.removesuffix("_type"))
        kind = getattr(kind, what).elem_type
    if what not in ("tensor_type", None):
        raise BrokenGraph(f"{info.name!r} is a {what.removesuffix('_type')}")
    tensor = kind.tensor_type
    shape = (
        side.dim_value if side.HasField("dim_value") else side.dim_param or f"{info.name}_{axis}"
        for axis, side in enumerate(tensor.shape.dim)
    )
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else ""
    return Value(dtype, tuple(shape), tuple(within))


def _info(name: str, value: Value) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(dtype_of(value.dtype))
    of = helper.make_tensor_type_proto(kind, value.shape)
    for what in reversed(value.within):
        of = HOLDERS[what](of)
    return helper.make_value_info(name, of)


def _external(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The tensors whose data lie outside the model."""
    nodes = [*model.graph.node, *(node for f in model.functions for node in f.node)]
    tensors = [*model.graph.initializer, *_in_nodes(nodes)]
    return [t for t in tensors if external_data_helper.uses_external_data(t)]


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """The tensors in the attributes of nodes, and in the graphs there."""
    for attribute in (a for node in _every(nodes) for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for graph in (attribute.g, *attribute.graphs):
            yield from graph.initializer


def _every(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those in the graphs among their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _every(graph.node)


def _inside(folder: Path, tensor: onnx.TensorProto, file: Path) -> tuple[Path, int]:
    """Where a tensor's data lie, and their bytes. Raises `UnsafeModel` outside of this folder."""
    try:
        data = external_data_helper.ExternalDataInfo(tensor)
    except ValueError as error:
        raise UnsafeModel(f"{file}: {error}") from None
    where = Path(data.location)
    try:
        target = (folder / where).resolve()
        regular = target.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, links in a ring
        raise UnsafeModel(f"{file}: the data of {tensor.name!r}: {error}") from None
    if where.is_absolute() or not target.is_relative_to(folder):
        raise UnsafeModel(f"{file}: the data of {tensor.name!r} lie outside its folder: {where}")
    if not regular:
        raise UnsafeModel(f"{file}: the data of {tensor.name!r} are in no regular file: {where}")
    offset, size = data.offset or 0, target.stat().st_size
    length = data.length or max(size - offset, 0)
    if offset < 0 or length < 0 or offset + length > size:
        raise UnsafeModel(f"{file}: the data of {tensor.name!r} end beyond the file {where}")
    return target, length
