"""ONNX nodes to operators and back.

Generic, since an operator's fields are ONNX's attributes: nothing here names an operator but for
what their versions' signatures do not show.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from d5test.case import Operator
from d5test.dtypes import NAMES, NUMBERS
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.classical import TRANSFORMED

if TYPE_CHECKING:
    import onnx

DOMAINS = {"ai.onnx": ""}
"""Other names of a domain."""

NODES = {cls.node_type(): cls for cls in OPERATORS.values()}
"""The operators by the domains and types of their nodes."""

OTHER_MEANING = {
    ("GroupNormalization", 18): "scale and bias are given for each group",
    ("PRelu", 1): "a slope is given for each channel",
    ("PRelu", 6): "a slope is given for each channel",
}
"""Older versions with a signature that reads like the one whose meaning we have."""

MODELLED: dict[tuple[str, str], Container[Any]] = {
    ("BitCast", "to"): NAMES,
    ("Cast", "to"): NAMES,
    ("TreeEnsemble", "post_transform"): range(len(TRANSFORMED)),
}
"""Values of attributes, of which there are more in ONNX than we have."""

COUNTED = {"Split": "num_outputs"}
"""Attributes that nodes before them expressed by the number of their outputs."""


OUT_OF_SCOPE = {
    "ImageDecoder": "an image's decoder",
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        "text",
    ),
}
"""Operators that will have no reference, and what they are about: nothing that is judged here."""

OTHER_DOMAINS = {"ai.onnx.ml": "classical machine learning"}
"""Likewise of all operators in a domain."""

SPELLED = {("MeanVarianceNormalization", "axes")}
"""Attributes that are written although they have their default: ONNX infers no shapes without."""


class NotModelled(LookupError):
    """There is no operator for this node; the text says why."""


def from_node(node: onnx.NodeProto, opset: int | None = None) -> Operator:
    """The operator of a node.

    `opset` is the version of its domain's operator set that its model imports: an older version
    of an operator is accepted if its attributes have the same defaults and its inputs the same
    names.
    Raises `NotModelled` if there is no such operator, version or attribute.
    """
    cls = NODES.get((DOMAINS.get(node.domain, node.domain), node.op_type))
    if cls is None:
        about = OTHER_DOMAINS.get(node.domain) or OUT_OF_SCOPE.get(node.op_type)
        raise NotModelled(about or "no such operator")
    if opset is not None:
        _require_meaning(cls, opset)
    names = {f.name for f in fields(cls)}
    for attribute in node.attribute:
        if attribute.name not in names:
            raise NotModelled(f"attribute {attribute.name}")
    values = {attribute.name: _value(attribute) for attribute in node.attribute}
    for name, value in values.items():
        if value not in MODELLED.get((node.op_type, name), (value,)):
            raise NotModelled(f"attribute {name}={value}")
    if node.op_type in COUNTED and len([name for name in node.input if name]) == 1:
        values.setdefault(COUNTED[node.op_type], len(node.output))
    return cls(**values)


def to_node(
    op: Operator,
    input_names: Sequence[str | None],
    output_names: Sequence[str | None],
    name: str = "",
) -> onnx.NodeProto:
    """The node of an operator. `None` is an input or output left out.

    An attribute with its default value is left out, so that a version before that attribute
    reads the node too; `SPELLED` are not.
    """
    from onnx import AttributeProto, defs, helper

    inputs = [name or "" for name in input_names]
    while inputs and not inputs[-1]:
        inputs.pop()
    outputs = [name or "" for name in output_names]
    domain, kind = op.node_type()
    node = helper.make_node(kind, inputs, outputs, name=name or None, domain=domain)
    schema: Any = defs.get_schema(kind, domain=domain) if defs.has(kind, domain) else None
    known = schema.attributes if schema else {}
    defaults = {f.name: f.default for f in fields(op)}
    for key, value in op.attributes.items():
        if value != defaults[key] or (op.name, key) in SPELLED:
            form = known[key].type.value if key in known else None
            if form == AttributeProto.TENSOR:
                dtype, shape, numbers = value
                value = helper.make_tensor("", NUMBERS[dtype], shape, numbers)
            node.attribute.append(helper.make_attribute(key, value, attr_type=form))
    return node


def _value(attribute: onnx.AttributeProto) -> Any:
    """An attribute's value: text as str, lists as tuples, tensors as dtype, shape and numbers."""
    from onnx import AttributeProto, helper, numpy_helper

    lists = (AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS)
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == AttributeProto.TENSOR:
        if value.data_type not in NAMES:
            raise NotModelled(f"attribute {attribute.name}, a tensor of text or complex numbers")
        array = numpy_helper.to_array(value)
        numbers = (math.nan if x != x else x for x in array.ravel().tolist())  # one, and equal
        return NAMES[value.data_type], array.shape, tuple(numbers)
    if attribute.type in lists:
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value


def _require_meaning(cls: type[Operator], opset: int) -> None:
    """Raise `NotModelled` unless the operator means in `opset` what it means in `cls.since`."""
    from onnx import defs

    domain, kind = cls.node_type()
    if opset >= cls.since or not defs.has(kind, domain):
        return
    if not defs.has(kind, opset, domain):
        raise NotModelled(f"no such operator in version {opset}")
    older, ours = (defs.get_schema(kind, version, domain) for version in (opset, cls.since))
    version = older.since_version
    why = OTHER_MEANING.get((cls.__name__, version), "")
    if not why and not _attributes(older).items() <= _attributes(ours).items():
        why = "its attributes differ"
    names = [[i.name for i in schema.inputs] for schema in (older, ours)]
    if not why and names[0] != names[1][: len(names[0])]:
        why = "its inputs differ"
    if why:
        raise NotModelled(f"version {version}: {why}")


def _attributes(schema: onnx.defs.OpSchema) -> dict[str, bytes]:
    """The attributes of a schema with their defaults."""
    return {
        name: attribute.default_value.SerializeToString()
        for name, attribute in schema.attributes.items()
    }
