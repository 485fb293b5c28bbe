"""Anything that implements ONNX's own backend interface, `onnx.backend.base.Backend`.

An operator becomes a model of one node, made from its attributes and the inputs' dtypes and
shapes, prepared once and run on NumPy arrays. There are no gradients. The worker's interpreter
needs NumPy, onnx, ml_dtypes and the runtime.

A stranger's runtime is one class:

    class Mine(OnnxBackend):
        framework = "mine"
        implementation = "mine.onnx_backend"    # a module or module:Class with `prepare`

What the runtime cannot do and what it does wrong are told apart by a strict rule. These alone are
Unsupported:

* the operator has an attribute or input that the newest operator set of the runtime lacks;
* an exception `NotImplementedError`, `unittest.SkipTest`, or of a class called `NotImplemented`
  or `BackendIsNotSupposedToImplementIt`;
* an exception of `prepare` that says, in one of the phrases of `UNPREPARED`, that an operator, an
  attribute or a type is not registered, not implemented or not supported;
* an exception of `run` that says so in one of the phrases of `UNRUN`.

Every other exception, and all wrong values, are the runtime's faults.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.shape_inference
from numpy.typing import NDArray

from d5test.backends.base import FLOATS, Backend, Row, Unsupported, bits

Kind = onnx.defs.OpSchema.FormalParameterOption

UNRUN = (
    "NOT_IMPLEMENTED",
    "not implemented",
    "not supported",
    "does not support",
    "can't be converted to MLDataType",  # NumPy's dtypes do not include bfloat16
)
UNPREPARED = (
    *UNRUN,
    "is not a registered function/op",
    "Unrecognized attribute",
    ") is invalid.",  # Type 'tensor(bfloat16)' of input parameter (X) of operator (Y) in node (Z)
)
GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
NOT_IMPLEMENTED = ("NotImplemented", "BackendIsNotSupposedToImplementIt")


@dataclass(frozen=True)
class Prepared:
    """A model of one node, ready to run on the inputs at `given`."""

    run: Callable[[list[NDArray[Any]]], Any]
    given: tuple[int, ...]


class OnnxBackend(Backend):
    """A runtime behind `prepare(model, device)` and `run(inputs)`. A tensor is a NumPy array."""

    implementation: ClassVar[str]
    """The module, or `module:Class`, that has `prepare`."""
    mutable = True
    reads_models = True

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        module, _, name = self.implementation.partition(":")
        found = importlib.import_module(module)
        self._runtime: Any = getattr(found, name) if name else found
        self.opset = self._newest_opset()
        self._prepared: dict[Any, Prepared] = {}
        self._last: tuple[Any, Any, Prepared] | None = None
        self.rows = {  # type: ignore[misc]
            name: Row(
                partial(self._call, name),
                arithmetic=self.arithmetic_of(name),
                dtypes=self.dtypes_of(name),
                gradient="onnx.backend has no gradients",
                flushes=self.flushes_of(name),
                ulps=self.ulps_of(name),
            )
            for name in _names(self.opset)
        }

    def options(self) -> Mapping[str, Any]:
        """Further arguments of `prepare`."""
        return {}

    def arithmetic_of(self, operator: str) -> str:
        """The loosest class of arithmetic that is allowed for 16-bit dtypes: F, P or S."""
        return "P"

    def flushes_of(self, operator: str) -> bool:
        """Whether an operator's kernel makes zeros of results below the smallest normal number."""
        return False

    def ulps_of(self, operator: str) -> Mapping[str, float]:
        """Elementary functions whose larger error, in one operator alone, is known."""
        return {}

    def single(self, operator: str) -> str:
        """Why an operator computes in float32 what is float64; empty if it does not."""
        if "stash_type" in onnx.defs.get_schema(operator, self.opset).attributes:
            return "by ONNX's default of stash_type, 1, statistics are computed in float32"
        return ""

    def dtypes_of(self, operator: str) -> tuple[str, ...]:
        """The floating-point dtypes that the runtime declares for an operator: here, ONNX's.

        Not float64 where the computation is in float32.
        """
        schema = onnx.defs.get_schema(operator, self.opset)
        allowed = {t for each in schema.type_constraints for t in each.allowed_type_strs}
        names = {"float64": "tensor(double)", "float32": "tensor(float)"}
        declared = [f for f in FLOATS if names.get(f, f"tensor({f})") in allowed]
        if self.single(operator) and "float64" in declared:
            declared.remove("float64")
        return tuple(declared) or FLOATS

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.framework)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> NDArray[Any]:
        made = np.array(array, order="C")
        return made.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else made

    def refill(self, tensor: Any, array: NDArray[Any], dtype: str) -> None:
        np.copyto(tensor, array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.array(tensor))

    def wait(self, tensors: Sequence[Any]) -> None:
        """Nothing: `run` returns NumPy arrays."""

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        raise Unsupported("onnx.backend has no gradients")

    def prepare(self, model: bytes) -> Callable[..., Sequence[Any]]:
        loaded = onnx.load_from_string(model)
        runtime = self._runtime_of(loaded)

        def run(*inputs: Any) -> Sequence[Any]:
            results: Sequence[Any] = runtime.run(list(inputs))
            return results

        return run

    def reset(self) -> None:
        self._prepared.clear()
        self._last = None

    def _call(self, name: str, op: Any, *inputs: Any) -> tuple[Any, ...]:
        kinds = tuple(None if x is None else (x.dtype, x.shape) for x in inputs)
        if self._last is not None and self._last[0] is op and self._last[1] == kinds:
            prepared = self._last[2]
        else:
            attributes = _attributes(name, op, self.opset)
            if inputs[0].dtype == np.float64 and self.single(name):
                raise Unsupported(f"{name} in float64: {self.single(name)}")
            key = (name, repr(attributes), kinds)
            if key not in self._prepared:
                self._prepared[key] = self._prepare(name, attributes, inputs)
            prepared = self._prepared[key]
            self._last = (op, kinds, prepared)
        given = [inputs[i] for i in prepared.given]
        try:
            return tuple(prepared.run(given))
        except Exception as error:
            reason = _lacking(error, UNRUN)
            if reason is None:
                raise
            raise reason from error

    def _prepare(
        self, name: str, attributes: Mapping[str, Any], inputs: Sequence[Any]
    ) -> Prepared:
        model, given = build_model(name, attributes, inputs, self.opset)
        return Prepared(self._runtime_of(model).run, given)

    def _runtime_of(self, model: onnx.ModelProto) -> Any:
        """The model prepared. Raises `Unsupported` where something is not implemented."""
        try:
            return self._runtime.prepare(model, self.device.upper(), **self.options())
        except (Exception, unittest.SkipTest) as error:
            reason = _lacking(error, UNPREPARED)
            if reason is None:
                raise
            raise reason from error

    def _newest_opset(self) -> int:
        """The newest operator set with which the runtime prepares a model."""
        probe = np.zeros(1, np.float32)
        reason: BaseException | None = None
        for opset in range(onnx.defs.onnx_opset_version(), 6, -1):
            model, _ = build_model("Relu", {}, (probe,), opset)
            try:
                self._runtime.prepare(model, self.device.upper(), **self.options())
            except (Exception, unittest.SkipTest) as error:  # noqa: BLE001 (each has its own)
                reason = error
            else:
                return opset
        raise Unsupported(f"{self.implementation} prepares no model of one Relu: {reason}")


def _names(opset: int) -> tuple[str, ...]:
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


def _attributes(name: str, op: Any, opset: int) -> dict[str, Any]:
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
    """A model of one node with all outputs of its schema, and which of `inputs` it takes."""
    schema = onnx.defs.get_schema(name, opset)
    if len(inputs) > schema.max_input:
        raise Unsupported(f"{name} of operator set {opset} has {schema.max_input} inputs at most")
    if name == "Dropout":
        raise Unsupported("ONNX's Dropout draws its mask itself, or is the identity")
    given = tuple(i for i, x in enumerate(inputs) if x is not None)
    last = given[-1] + 1 if given else 0
    node = onnx.NodeProto(op_type=name)
    node.input.extend(f"x{i}" if i in given else "" for i in range(last))
    node.output.extend(f"y{i}" for i in range(_outputs(schema, attributes, inputs)))
    for attribute, value in attributes.items():
        kind = _kind(schema.attributes[attribute])
        node.attribute.append(onnx.helper.make_attribute(attribute, value, attr_type=kind))
    infos = [_info(f"x{i}", inputs[i]) for i in given]
    graph = onnx.helper.make_graph([node], name, infos, [])
    opsets = [onnx.helper.make_opsetid("", opset)]
    version = onnx.helper.find_min_ir_version_for(opsets)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=version)
    model.graph.output.extend(_output_infos(model, inputs, given))
    return model, given


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
    model: onnx.ModelProto, inputs: Sequence[Any], given: Sequence[int]
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
    names = list(model.graph.node[0].output)
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


def _lacking(error: BaseException, phrases: Sequence[str]) -> Unsupported | None:
    """The reason, if the exception tells that something is not implemented."""
    text = str(error)
    if (
        isinstance(error, (NotImplementedError, unittest.SkipTest))
        or type(error).__name__ in NOT_IMPLEMENTED
        or any(phrase in text for phrase in phrases)
    ):
        return Unsupported(f"{type(error).__name__}: {' '.join(text.split())[:300]}")
    return None
