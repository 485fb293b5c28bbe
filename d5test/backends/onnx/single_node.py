"""An operator as an ONNX model of one node. NumPy and onnx only: it is needed in a worker.

A node names all outputs of its schema. Where ONNX forbids some of them beside an input that is
given, a second node without that input has them, so that every output is still the runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
from numpy.typing import NDArray

from d5test.backends.base import Unsupported

Kind = onnx.defs.OpSchema.FormalParameterOption
GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
APART: Mapping[str, Mapping[int, tuple[int, ...]]] = {"Attention": {6: (1, 2)}}
"""By operator and the position of an optional input: outputs that ONNX forbids a node with it.

The operators' own `apart`, which no worker has: tests hold one to the other.
"""


def names(opset: int) -> tuple[str, ...]:
    """The operators of ONNX's own domain that take and give tensors, and no graphs."""
    schemas = (
        onnx.defs.get_schema(s.name, opset)
        for s in onnx.defs.get_all_schemas()
        if s.domain == "" and not s.deprecated and onnx.defs.has(s.name, opset)
    )
    return tuple(
        sorted(
            s.name
            for s in schemas
            if not s.deprecated
            and not any(_kind(a) in GRAPHS for a in s.attributes.values())
            and not any("(seq" in f.type_str or "optional" in f.type_str for f in s.inputs)
        )
    )


def attributes_of(name: str, op: Any, opset: int) -> dict[str, Any]:
    """The operator's attributes by their ONNX names, without those that are absent or default.

    Raises `Unsupported` where one is set that this operator set does not have.
    """
    known = onnx.defs.get_schema(name, opset).attributes
    newest = onnx.defs.get_schema(name).attributes
    values: dict[str, Any] = {}
    for attribute, formal in newest.items():
        value = getattr(op, attribute, None)
        if value is None or value == _default(formal):
            continue
        if attribute not in known:
            raise Unsupported(f"{name} of operator set {opset} has no attribute {attribute}")
        values[attribute] = value
    return values


def _default(attribute: Any) -> Any:
    """The value that the attribute has where it is left out, `None` where there is none."""
    if not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def _kind(attribute: Any) -> int:
    """The number of an attribute's type, as in AttributeProto."""
    return int(attribute.type)


def build_model(
    name: str, attributes: Mapping[str, Any], inputs: Sequence[Any], opset: int
) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A model of the operator with all outputs of its schema, and which of `inputs` it takes."""
    schema = onnx.defs.get_schema(name, opset)
    if len(inputs) > schema.max_input:
        raise Unsupported(f"{name} of operator set {opset} has {schema.max_input} inputs at most")
    if name == "Dropout":
        raise Unsupported("ONNX's Dropout draws its mask itself, or is the identity")
    given = tuple(i for i, x in enumerate(inputs) if x is not None)
    excluding = [i for i in given if i in APART.get(name, {})]
    apart = [k for i in excluding for k in APART[name][i]]
    outputs = range(_outputs(schema, attributes, inputs))
    nodes = [_node(schema, attributes, given, [k for k in outputs if k not in apart])]
    if apart:
        others = [i for i in given if i not in excluding]
        nodes.append(_node(schema, attributes, others, apart))
    infos = [_info(f"x{i}", inputs[i]) for i in given]
    graph = onnx.helper.make_graph(nodes, name, infos, [])
    opsets = [onnx.helper.make_opsetid("", opset)]
    version = onnx.helper.find_min_ir_version_for(opsets)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=version)
    names = [f"y{k}" for k in outputs]
    model.graph.output.extend(_output_infos(model, names, inputs, given))
    return model, given


def _node(
    schema: Any, attributes: Mapping[str, Any], given: Sequence[int], wanted: Sequence[int]
) -> onnx.NodeProto:
    """A node that takes the inputs `given` and names the outputs `wanted`, and what it must."""
    node = onnx.NodeProto(op_type=schema.name)
    last = given[-1] + 1 if given else 0
    node.input.extend(f"x{i}" if i in given else "" for i in range(last))
    for k in range(max(wanted, default=-1) + 1):
        if k in wanted:
            node.output.append(f"y{k}")
        else:
            node.output.append("" if _optional(schema, k) else f"unwanted{k}")
    for attribute, value in attributes.items():
        kind = _kind(schema.attributes[attribute])
        node.attribute.append(onnx.helper.make_attribute(attribute, value, attr_type=kind))
    return node


def _optional(schema: Any, output: int) -> bool:
    """Whether a node need not name an output."""
    return bool(schema.outputs[output].option == Kind.Optional)


def _outputs(schema: Any, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> int:
    """How many outputs the node has: all, but for running statistics in inference."""
    if any(f.option == Kind.Variadic for f in schema.outputs):
        return attributes.get("num_outputs") or len(inputs[1])
    if schema.name == "BatchNormalization" and not attributes.get("training_mode"):
        return 1
    return len(schema.outputs)


def _info(name: str, x: NDArray[Any]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(
        name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
    )


def _output_infos(
    model: onnx.ModelProto, names: Sequence[str], inputs: Sequence[Any], given: Sequence[int]
) -> list[onnx.ValueInfoProto]:
    """Dtype and rank of each output: the integer inputs may be shapes, so they are told here.

    Where ONNX infers nothing, as in a case that is not valid, they are those of the first input.
    """
    told = onnx.ModelProto()
    told.CopyFrom(model)
    told.graph.initializer.extend(
        onnx.numpy_helper.from_array(inputs[i], f"x{i}")
        for i in given
        if inputs[i].dtype == np.int64
    )
    told.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found = {}
    for info in onnx.shape_inference.infer_shapes(told, data_prop=True).graph.output:
        tensor = info.type.tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            found[info.name] = (tensor.elem_type, len(tensor.shape.dim))
    first = inputs[given[0]]
    fallback = (onnx.helper.np_dtype_to_tensor_dtype(first.dtype), first.ndim)
    return [
        onnx.helper.make_tensor_value_info(name, dtype, [None] * rank)
        for name in names
        for dtype, rank in [found.get(name, fallback)]
    ]
