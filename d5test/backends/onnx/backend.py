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
from numpy.typing import NDArray

from d5test.backends.base import FLOATS, Backend, Row, Unsupported, bits
from d5test.backends.onnx.single_node import attributes_of, build_model, names

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
        self._runtime = self._implementation()
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
            )
            for name in names(self.opset)
        }

    @classmethod
    def _implementation(cls) -> Any:
        module, _, name = cls.implementation.partition(":")
        found = importlib.import_module(module)
        return getattr(found, name) if name else found

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        """Those of ONNX's device types that the implementation says it supports."""
        supports = getattr(cls._implementation(), "supports_device", lambda given: given == "CPU")
        return tuple(device for device in ("cpu", "cuda") if supports(device.upper()))

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
            attributes = attributes_of(name, op, self.opset)
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
