"""Native operators in JAX: calls of XLA's foreign function interface, with a `custom_vjp`.

The C++ half (`source/jax.cpp`) is compiled once for each jaxlib. They work under `jax.jit`, and
under `jax.vmap` one sample after the other. XLA's arrays are row-major. An input that is absent is
`None`; integers and booleans have tangents of float0, as everywhere in JAX.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import Plan, Table, Unsupported
from d5test.backends.jax import Jax, JaxCompiled
from d5test.backends.jax.framework import jax, jnp
from d5test.native import compiler
from d5test.native.bridges import (
    address,
    asked,
    bits_of,
    differentiable,
    first_floating,
    rows,
    shapes,
    sources,
    taken,
)
from d5test.native.library import Declared, Port

SOURCE = Path(__file__).with_name("source") / "jax.cpp"
PLATFORMS = ("cpu", "CUDA")
DIRECTIONS = ("forward", "backward")
WHOLE = np.dtype(np.int64)


def toolchain() -> list[str]:
    """The compiler's flags for a library of this XLA's."""
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
        bits = bits_of(one, dtype)
        self.one, self.attributes, self.dtype, self.bits = one, dict(attributes), dtype, bits
        self.address = partial(address, one, tuple(sorted(attributes.items())), bits, guarded)
        function: Any = self._forward
        if one.differentiable:
            function = jax.custom_vjp(self._forward)
            function.defvjp(self._remembering, self._backward)
        # eager too: JAX reads a custom_vjp anew at each call, which takes 30 times as long
        self.function: Any = jax.jit(function, inline=True)

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of those that are there."""
        if self.one.plain:
            if any(x.dtype != self.dtype for x in inputs):
                raise Unsupported(f"{self.one.name} has inputs of one dtype")
        else:
            every = zip_longest(self.one.inputs, inputs)
            inputs = tuple(None if x is None else self._fit(port, x) for port, x in every)
        outputs = self.function(*inputs)
        return outputs if len(outputs) > 1 else outputs[0]

    def _fit(self, port: Port, x: Any) -> Any:
        """An input as it is registered, integers in int64."""
        if x.dtype != (WHOLE if port.whole else self.dtype):
            taken(port, x.dtype.name, self.dtype.name)
        return x.astype(WHOLE) if port.whole and x.dtype != WHOLE else x

    def _forward(self, *inputs: Any) -> tuple[Any, ...]:
        inferred = shapes(self.one, inputs, self.attributes, self.bits)
        types = [
            jax.ShapeDtypeStruct(tuple(shape), WHOLE if port.whole else self.dtype)
            for port, shape in zip(self.one.outputs, inferred, strict=False)
        ]
        bound = self.address(self._slopes(inputs), len(inferred))
        return self._asked("forward", types, inputs, bound)

    def _remembering(self, *inputs: Any) -> Any:
        outputs = self._forward(*inputs)
        return outputs, (inputs, tuple(self.one.read_backward(outputs)))

    def _backward(self, remembered: Any, grads: Any) -> tuple[Any, ...]:
        inputs, outputs = remembered
        ports = zip(self.one.outputs, grads, strict=False)
        upstream = [dy for port, dy in ports if not port.whole]
        slopes = self._slopes(inputs)
        types = [
            jax.ShapeDtypeStruct(x.shape, self.dtype)
            for x, has_slope in zip(inputs, slopes, strict=True)
            if has_slope
        ]
        bound = self.address(slopes, len(grads))
        gradients = iter(self._asked("backward", types, (*upstream, *inputs, *outputs), bound))
        return tuple(next(gradients) if has_slope else None for has_slope in slopes)

    def _slopes(self, inputs: Sequence[Any]) -> tuple[bool | None, ...]:
        if self.one.plain:
            return (True,) * len(inputs)
        return differentiable(self.one, inputs, lambda x: bool(x.dtype == self.dtype))

    def _asked(
        self, direction: str, types: Sequence[Any], buffers: Sequence[Any], bound: int
    ) -> tuple[Any, ...]:
        call = jax.ffi.ffi_call(f"d5test_{direction}", types, vmap_method="sequential")
        return tuple(call(*(x for x in buffers if x is not None), bound=np.int64(bound)))


@cache
def called(one: Declared, attributes: Any, dtype: Any, guarded: bool) -> Callable[..., Any]:
    """The same function for the same attributes: it keeps what is compiled of it."""
    return Called(one, dict(attributes), dtype, guarded)


def plan(one: Declared, guarded: bool, op: Any, *inputs: Any) -> Plan:
    """The operator with its attributes bound."""
    attributes = asked(one, op, inputs)
    first = first_floating(one, inputs, lambda x: jnp.issubdtype(x.dtype, jnp.floating))
    device = jax.config.jax_default_device or jax.devices()[0]
    if one.on_cuda != (device.platform != "cpu"):
        raise Unsupported(f"{one.name} is compiled for {'CUDA' if one.on_cuda else 'the CPU'}")
    return called(one, tuple(sorted(attributes.items())), np.dtype(first.dtype), guarded)


registered()


class NativeJax(Jax):
    """JAX with native operators."""

    rows = Table({**Jax.rows, **rows(plan, cuda=True)})
    sources: ClassVar[Mapping[str, str]] = sources()


class NativeJaxCompiled(NativeJax, JaxCompiled):
    """`jax.jit` with native operators."""
