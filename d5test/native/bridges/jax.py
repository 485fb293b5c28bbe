"""Native operators in JAX: calls of XLA's foreign function interface, with a `custom_vjp`.

The C++ half (`source/jax.cpp`) is compiled once for each jaxlib. They work under `jax.jit`, and
under `jax.vmap` one sample after the other. XLA's arrays are row-major.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import Plan, Row, Table, Unsupported
from d5test.backends.jax import Jax, JaxCompiled
from d5test.backends.jax.framework import jax
from d5test.native import compiler, interface
from d5test.native.axes import shapes
from d5test.native.bridges import available, given, kept, row, sources
from d5test.native.library import Declared

SOURCE = Path(__file__).with_name("source") / "jax.cpp"
PLATFORMS = ("cpu", "CUDA")
DIRECTIONS = ("forward", "backward")


def toolchain() -> list[str]:
    """What the compiler is told for a library of this XLA's."""
    return [f"-isystem{jax.ffi.include_dir()}"]


@cache
def registered() -> ctypes.CDLL:
    """The compiled half of the bridge, entered into XLA."""
    version = f"jaxlib {jax.lib.__version__}"
    library = ctypes.CDLL(str(compiler.bridge(SOURCE, version, toolchain())))
    for platform in PLATFORMS:
        for direction in DIRECTIONS:
            handler = getattr(library, f"d5test_jax_{direction}_{platform}")
            name = f"d5test_{direction}"
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=platform)
    return library


class Called:
    """A native operator with its attributes set, as a function of arrays of one dtype."""

    def __init__(self, one: Declared, attributes: Mapping[str, Any], dtype: Any, guarded: bool):
        bits = interface.dtype_bits(dtype)
        if bits is None:
            raise Unsupported(f"{one.name} is compiled for float32 and float64, not {dtype}")
        self.one, self.attributes, self.dtype, self.bits = one, dict(attributes), dtype, bits
        self.made = kept(one, tuple(sorted(attributes.items())), bits, guarded)
        function: Any = self._forward
        if one.differentiable:
            function = jax.custom_vjp(self._forward)
            function.defvjp(self._remembering, self._backward)
        # eager too: JAX reads a custom_vjp anew at each call, which takes 30 times as long
        self.function: Any = jax.jit(function, inline=True)

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of them."""
        for x in inputs:
            if x.dtype != self.dtype:
                raise Unsupported(f"{self.one.name} has inputs of one dtype")
        outputs = self.function(*inputs)
        return outputs if len(outputs) > 1 else outputs[0]

    def _forward(self, *inputs: Any) -> tuple[Any, ...]:
        found = shapes(self.one, [x.shape for x in inputs], self.attributes, self.bits)
        return self._asked("forward", found, inputs)

    def _remembering(self, *inputs: Any) -> Any:
        outputs = self._forward(*inputs)
        return outputs, (inputs, outputs)

    def _backward(self, remembered: Any, grads: Any) -> tuple[Any, ...]:
        inputs, outputs = remembered
        found = [x.shape for x in inputs]
        return self._asked("backward", found, (*grads, *inputs, *outputs))

    def _asked(
        self, direction: str, found: Sequence[Any], buffers: Sequence[Any]
    ) -> tuple[Any, ...]:
        types = tuple(jax.ShapeDtypeStruct(tuple(shape), self.dtype) for shape in found)
        call = jax.ffi.ffi_call(f"d5test_{direction}", types, vmap_method="sequential")
        table = np.int64(ctypes.addressof(self.one.table))
        return tuple(call(*buffers, table=table, made=np.int64(self.made.pointer.value or 0)))


@cache
def called(one: Declared, attributes: Any, dtype: Any, guarded: bool) -> Callable[..., Any]:
    """The same function for the same attributes: it keeps what is compiled of it."""
    return Called(one, dict(attributes), dtype, guarded)


def plan(one: Declared, guarded: bool, op: Any, *inputs: Any) -> Plan:
    """The operator with its attributes bound."""
    attributes = given(one, op, inputs)
    device = jax.config.jax_default_device or jax.devices()[0]
    if one.on_cuda != (device.platform != "cpu"):
        raise Unsupported(f"{one.name} is compiled for {'CUDA' if one.on_cuda else 'the CPU'}")
    return called(one, tuple(sorted(attributes.items())), np.dtype(inputs[0].dtype), guarded)


def rows() -> dict[str, Row]:
    """The rows of all native operators."""
    registered()
    return {
        one.name: row(one, partial(plan, one, False), partial(plan, one, True))
        for one in available()
    }


class NativeJax(Jax):
    """JAX with native operators."""

    rows = Table({**Jax.rows, **rows()})
    sources: ClassVar[Mapping[str, str]] = sources()


class NativeJaxCompiled(JaxCompiled):
    """`jax.jit` with native operators."""

    rows = NativeJax.rows
    sources: ClassVar[Mapping[str, str]] = NativeJax.sources
