"""Anything that implements ONNX's own backend interface, `onnx.backend.base.Backend`.

An operator becomes a model of one node, made from its attributes and the inputs' dtypes and
shapes, prepared once and run on NumPy arrays. There are no gradients. The worker's interpreter
needs NumPy, onnx, ml_dtypes and the runtime.

A stranger's runtime is one class:

    class Mine(OnnxBackend):
        framework = "mine"
        implementation = "mine.onnx_backend"    # a module or module:Class with `prepare`
        opset = 22                              # without: the newest with which it prepares a Relu

What the runtime cannot do and what it does wrong are told apart by a strict rule. These alone are
Unsupported:

* the operator has an attribute or input that the newest operator set of the runtime lacks;
* an exception `NotImplementedError`, `unittest.SkipTest`, or of a class called `NotImplemented`
  or `BackendIsNotSupposedToImplementIt`;
* an exception of `prepare` that says, in one of the phrases of `UNPREPARED`, that an operator, an
  attribute or a type is not registered, not implemented or not supported;
* an exception of `run` that says so in one of the phrases of `UNRUN`, for some runtimes compile
  only then.

Every other exception, and all wrong values, are the runtime's faults.

A node names all outputs of its schema. Where ONNX forbids some of them beside an input that is
given, a second node without that input has them, so that every output is still the runtime's.
"""

import importlib
import importlib.metadata
import unittest
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
from numpy.typing import NDArray

from d5test.backends.base import (
    FLOATS,
    Backend,
    Function,
    Pulled,
    Row,
    Tensors,
    Unsupported,
    bits,
    from_bits,
)
from d5test.dtypes import NAMES, NUMBERS

Kind = onnx.defs.OpSchema.FormalParameterOption
ML = "ai.onnx.ml"
"""ONNX's domain beside its own. A model imports the version that has its operator's newest."""
GRAPHS = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
APART: Mapping[str, Mapping[int, tuple[int, ...]]] = {"Attention": {6: (1, 2)}}
"""By operator and the position of an optional input: outputs that ONNX forbids a node with it.

The operators' own `apart`, which no worker has: tests hold one to the other.
"""


def operators(opset: int) -> list[str]:
    """ONNX's operators, classical ones among them, that take and give tensors, and no graphs."""
    schemas = (
        schema_of(s.name, opset)
        for s in onnx.defs.get_all_schemas()
        if s.domain == ML or (s.domain == "" and onnx.defs.has(s.name, opset))
    )
    return sorted(
        s.name
        for s in schemas
        if not s.deprecated
        and not any(a.type in GRAPHS for a in s.attributes.values())
        and not any("(seq" in f.type_str or "optional" in f.type_str for f in s.inputs)
    )


def schema_of(name: str, opset: int) -> Any:
    """An operator's schema in this version of ONNX's own operator set, or the newest of `ML`."""
    if onnx.defs.has(name, domain=ML):
        return onnx.defs.get_schema(name, domain=ML)
    return onnx.defs.get_schema(name, opset)


def attributes_of(name: str, op: Any, opset: int) -> dict[str, Any]:
    """The operator's attributes by their ONNX names, without those that are absent or default.

    Raises `Unsupported` where one is set that this operator set does not have.
    """
    known = schema_of(name, opset).attributes
    newest = schema_of(name, onnx.defs.onnx_opset_version()).attributes
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


def draws_a_mask(x: Any, ratio: Any = None, training_mode: Any = None) -> bool:
    """Whether a Dropout does: not where it is given one, nor where nothing is dropped."""
    if training_mode is None or training_mode.ndim or not training_mode:
        return False
    return ratio is None or bool(ratio > 0)


def build_model(
    name: str, attributes: Mapping[str, Any], inputs: Sequence[Any], opset: int
) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A model of the operator with all outputs of its schema, and which of `inputs` it takes."""
    schema = schema_of(name, opset)
    if len(inputs) > schema.max_input:
        raise Unsupported(f"{name} of operator set {opset} has {schema.max_input} inputs at most")
    present = tuple(i for i, x in enumerate(inputs) if x is not None)
    excluding = [i for i in present if i in APART.get(name, {})]
    apart = [k for i in excluding for k in APART[name][i]]
    outputs = range(_outputs(schema, attributes, inputs))
    nodes = [_node(schema, attributes, present, [k for k in outputs if k not in apart])]
    if apart:
        others = [i for i in present if i not in excluding]
        nodes.append(_node(schema, attributes, others, apart))
    infos = [_info(f"x{i}", inputs[i].dtype, inputs[i].shape) for i in present]
    graph = onnx.helper.make_graph(nodes, name, infos, [])
    opsets = [onnx.helper.make_opsetid("", opset)]
    if schema.domain:
        opsets.append(onnx.helper.make_opsetid(schema.domain, schema.since_version))
    version = onnx.helper.find_min_ir_version_for(opsets)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=version)
    model.graph.output.extend(_output_infos(model, [f"y{k}" for k in outputs], inputs, present))
    return model, present


def _node(
    schema: Any, attributes: Mapping[str, Any], present: Sequence[int], wanted: Sequence[int]
) -> onnx.NodeProto:
    """A node that takes the inputs `present` and names the outputs `wanted`, and what it must."""
    node = onnx.NodeProto(op_type=schema.name, domain=schema.domain)
    last = present[-1] + 1 if present else 0
    node.input.extend(f"x{i}" if i in present else "" for i in range(last))
    for k in range(max(wanted, default=-1) + 1):
        if k in wanted:
            node.output.append(f"y{k}")
        else:
            optional = schema.outputs[k].option == Kind.Optional
            node.output.append("" if optional else f"unwanted{k}")
    for attribute, value in attributes.items():
        kind = int(schema.attributes[attribute].type)
        if kind == onnx.AttributeProto.TENSOR:
            dtype, shape, numbers = value
            value = onnx.helper.make_tensor("", NUMBERS[dtype], shape, numbers)
        node.attribute.append(onnx.helper.make_attribute(attribute, value, attr_type=kind))
    return node


def _outputs(schema: Any, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> int:
    """How many outputs the node has: all, but for running statistics in inference."""
    if any(f.option == Kind.Variadic for f in schema.outputs):
        return attributes.get("num_outputs") or len(inputs[1])
    if schema.name == "BatchNormalization" and not attributes.get("training_mode"):
        return 1
    return len(schema.outputs)


def _info(name: str, dtype: np.dtype[Any], shape: Sequence[Any]) -> onnx.ValueInfoProto:
    number = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_tensor_value_info(name, number, shape)


def _output_infos(
    model: onnx.ModelProto, names: Sequence[str], inputs: Sequence[Any], present: Sequence[int]
) -> list[onnx.ValueInfoProto]:
    """Dtype and rank of each output: the integer inputs may be shapes, so their values are there.

    Where ONNX infers nothing, as in a case that is not valid, they are those of the first input.
    """
    valued = onnx.ModelProto()
    valued.CopyFrom(model)
    valued.graph.initializer.extend(
        onnx.numpy_helper.from_array(inputs[i], f"x{i}")
        for i in present
        if inputs[i].dtype in (np.int64, np.int32)
    )
    valued.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    inferred = {}
    for info in onnx.shape_inference.infer_shapes(valued, data_prop=True).graph.output:
        tensor = info.type.tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            unknown = [None] * len(tensor.shape.dim)
            inferred[info.name] = onnx.helper.make_tensor_value_info(
                info.name, tensor.elem_type, unknown
            )

    def like_first(name: str) -> onnx.ValueInfoProto:
        first = inputs[present[0]]
        return _info(name, first.dtype, [None] * first.ndim)

    return [inferred.get(name) or like_first(name) for name in names]


UNRUN = (
    "NOT_IMPLEMENTED",
    "not implemented",
    "not supported",
    "does not support",
    "not currently supported",  # RotaryEmbedding with more elements than rows of its caches
    "must be true for floating point",  # fmod of Mod-13, which knows no other of floats
    "only support",  # 'Linear' mode only supports 2-D inputs or ...
    "\nUnsupported ",  # at the beginning of a line: Unsupported padding mode: [wrap]
    "zero point must be a scalar",  # of MatMulInteger, for which ONNX has one for each row
    "block_size must be 0 for per-tensor quantization",  # of blocks of which there is one
    "Input data with index",  # ... is NaN: of Binarizer, for which that is no number to compare
    "can't be converted to MLDataType",  # NumPy's dtypes do not include bfloat16
    "No corresponding Numpy type for Tensor Type",  # likewise of a result
)
UNPREPARED = (
    *UNRUN,
    "is not a registered function/op",
    "Unrecognized attribute",
    "Failed to construct locale",  # of StringNormalizer, where the system has not installed it
    ") is invalid.",  # Type 'tensor(bfloat16)' of input parameter (X) of operator (Y) in node (Z)
)
KEPT = 512
"""Models that stay prepared: ONNX Runtime takes 1.1 MB for each."""
NOT_IMPLEMENTED = ("NotImplemented", "BackendIsNotSupposedToImplementIt")


class OnnxBackend(Backend):
    """A runtime behind `prepare(model, device)` and `run(inputs)`. A tensor is a NumPy array."""

    mutable = True
    reads_models = True

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._runtime = self._implementation()
        self.opset = type(self).opset or self._newest_opset()
        self._prepared: dict[Any, Function] = {}
        self._last: tuple[Any, Any, Function] | None = None
        self.rows = {  # type: ignore[misc]
            name: Row(
                partial(self._call, name),
                arithmetic=self.arithmetic_of(name),
                dtypes=self.dtypes_of(name),
                gradient="onnx.backend has no gradients",
                flushes=self.flushes_of(name),
            )
            for name in operators(self.opset)
        }

    @classmethod
    def _implementation(cls) -> Any:
        module, _, name = cls.implementation.partition(":")
        runtime = importlib.import_module(module)
        return getattr(runtime, name) if name else runtime

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        """Those of ONNX's device types that the implementation says it supports."""
        supports = getattr(
            cls._implementation(), "supports_device", lambda device: device == "CPU"
        )
        return tuple(device for device in ("cpu", "cuda") if supports(device.upper()))

    def opset_of(self, operator: str) -> int:
        """The operator set of an operator's models: an older one where that alone has kernels."""
        return self.opset

    def options(self) -> Mapping[str, Any]:
        """Further arguments of `prepare`."""
        return {}

    def arithmetic_of(self, operator: str) -> str:
        """The loosest class of arithmetic that is allowed for 16-bit dtypes: F, P or S."""
        return "P"

    def flushes_of(self, operator: str) -> bool:
        """Whether an operator's kernel makes zeros of results below the smallest normal number."""
        return False

    def single(self, operator: str) -> str:
        """Why an operator computes in float32 what is float64; empty if it does not."""
        if "stash_type" in schema_of(operator, self.opset).attributes:
            return "by ONNX's default of stash_type, 1, statistics are computed in float32"
        return ""

    def declined(self, operator: str, op: Any, inputs: Sequence[Any]) -> str:
        """Why a call counts as unsupported; empty if it does not."""
        made = NAMES.get(getattr(op, "output_datatype", 0))
        wide = "float64" in (made, *(x.dtype.name for x in inputs[:1]))
        if wide and (reason := self.single(operator)):
            return f"{operator} in float64: {reason}"
        if operator == "Dropout" and not draws_a_mask(*inputs):
            return "ONNX's Dropout is not given a mask: it draws one, or is the identity"
        return ""

    def nondeterministic(self, operator: str, what: str) -> str:
        if "seed" in schema_of(operator, self.opset).attributes:
            return "a seed is where a model's numbers begin: ONNX does not say that each run does"
        return ""

    def dtypes_of(self, operator: str) -> tuple[str, ...]:
        """The floating-point dtypes that the runtime declares for an operator: here, ONNX's.

        Not float64 where the computation is in float32.
        """
        schema = schema_of(operator, self.opset)
        allowed = {t for rule in schema.type_constraints for t in rule.allowed_type_strs}
        allowed |= {formal.type_str for formal in schema.inputs}
        names = {"float64": "tensor(double)", "float32": "tensor(float)"}
        declared = [f for f in FLOATS if names.get(f, f"tensor({f})") in allowed]
        if self.single(operator) and "float64" in declared:
            declared.remove("float64")
        return tuple(declared) or FLOATS

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.framework)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> NDArray[Any]:
        return from_bits(np.array(array, order="C"), dtype)

    def refill(self, tensor: Any, array: NDArray[Any], dtype: str) -> None:
        np.copyto(tensor, from_bits(array, dtype))

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.array(tensor))

    def wait(self, tensors: Sequence[Any]) -> None:
        """Nothing: `run` returns NumPy arrays."""

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        raise Unsupported("onnx.backend has no gradients")

    def prepare(self, model: bytes) -> Callable[..., Sequence[Any]]:
        try:
            runtime = self._runtime_of(onnx.load_from_string(model))
        except onnx.checker.ValidationError as error:
            raise Unsupported(f"onnx.checker refuses the model: {error}") from None
        return lambda *inputs: runtime.run(list(inputs))

    def reset(self) -> None:
        self._prepared.clear()
        self._last = None

    def _call(self, name: str, op: Any, *inputs: Any) -> Any:
        kinds = tuple(None if x is None else (x.dtype, x.shape) for x in inputs)
        if self._last is not None and self._last[0] is op and self._last[1] == kinds:
            prepared = self._last[2]
        else:
            opset = self.opset_of(name)
            attributes = attributes_of(name, op, opset)
            if reason := self.declined(name, op, inputs):
                raise Unsupported(reason)
            key = (name, repr(attributes), kinds)
            if key not in self._prepared:
                if len(self._prepared) == KEPT:
                    del self._prepared[next(iter(self._prepared))]
                model, present = build_model(name, attributes, inputs, opset)
                run = partial(self._run, self._runtime_of(model), present)
                self._prepared[key] = partial(_typed, run, dtypes_in(model))
            prepared = self._prepared[key]
            self._last = (op, kinds, prepared)
        return prepared(*inputs)

    def _run(self, runtime: Any, present: Sequence[int], *inputs: Any) -> tuple[Any, ...]:
        try:
            return tuple(runtime.run([inputs[i] for i in present]))
        except Exception as error:
            _refuse(error, UNRUN)
            raise

    def _runtime_of(self, model: onnx.ModelProto) -> Any:
        """The model prepared. Raises `Unsupported` where something is not implemented."""
        try:
            return self._runtime.prepare(model, self.device.upper(), **self.options())
        except (Exception, unittest.SkipTest) as error:
            _refuse(error, UNPREPARED)
            raise

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


def dtypes_in(model: onnx.ModelProto) -> tuple[np.dtype[Any], ...]:
    """The dtypes of a model's outputs."""
    numbers = (y.type.tensor_type.elem_type for y in model.graph.output)
    return tuple(map(onnx.helper.tensor_dtype_to_np_dtype, numbers))


def _typed(run: Function, dtypes: Sequence[np.dtype[Any]], *inputs: Any) -> tuple[Any, ...]:
    """What runs, its outputs in these dtypes: those that NumPy has not may come as their bits."""
    return tuple(
        y.view(dtype) if dtype.isbuiltin == 2 and y.dtype == np.uint8 else y
        for y, dtype in zip(run(*inputs), dtypes, strict=True)
    )


def _refuse(error: BaseException, phrases: Sequence[str]) -> None:
    """Raise `Unsupported` if the exception tells that something is not implemented."""
    text = str(error)
    if (
        isinstance(error, (NotImplementedError, unittest.SkipTest))
        or type(error).__name__ in NOT_IMPLEMENTED
        or any(phrase in f"\n{text}" for phrase in phrases)
    ):
        reason = f"{type(error).__name__}: {' '.join(text.split())[:300]}"
        raise Unsupported(reason) from error
