"""jax, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Template, Unsupported, bits
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jax, jnp
from d5test.backends.jax.optimizers import JaxReference, OptaxCompiled
from d5test.backends.jax.table import rows


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def pulled(
    function: Callable[..., Any], wanted: tuple[int, ...], inputs: Sequence[Any], grads: Any
) -> tuple[tuple[Any, ...], list[Any]]:
    def of_wanted(*chosen: Any) -> tuple[Any, ...]:
        every = list(inputs)
        for i, x in zip(wanted, chosen, strict=True):
            every[i] = x
        return as_tuple(function(*every))

    try:
        outputs, pull = jax.vjp(of_wanted, *(inputs[i] for i in wanted))
        given = list(grads) + [None] * (len(outputs) - len(grads))
        return outputs, list(pull(tuple(map(cotangent, outputs, given))))
    except NotImplementedError as error:
        raise Unsupported(f"jax: {error}") from error


def cotangent(y: Array, dy: Any) -> Any:
    if not jnp.issubdtype(y.dtype, jnp.inexact):
        return np.zeros(y.shape, jax.dtypes.float0)
    return jnp.zeros_like(y) if dy is None else jnp.asarray(dy, y.dtype)


FORGET = 5000
"""Tensors that are put until compiled shapes are forgotten. They pile up, at about 1 MB a case,
and would end a long run for want of memory, which would look like a fault of jax."""


TEMPLATE = Template(
    imports='import jax\n\njax.config.update("jax_enable_x64", True)',
    tensor='jax.numpy.array({values}, dtype="{dtype}")',
    array="np.array({y}, float)",
    dtype="{y}.dtype.name",
    gradient="y, pull = jax.vjp(lambda {inputs}: {call}, {inputs})\nresults = pull(dy)",
)


class Jax(Backend):
    """jax, operation by operation."""

    framework = "jax"
    rows = rows
    compiles_shapes = True
    template = TEMPLATE
    updaters: ClassVar[Mapping[str, Any]] = {"native": OptaxCompiled, "reference": JaxReference}
    ulps: ClassVar[Mapping[str, float]] = {
        "erf": 7,
        "erfc": 65,
        "exp2": 66,
        "expm1": 6,
        "log1p": 129,
        "sinh": 25,
        "cosh": 25,
        "tanh": 7,
    }
    """Largest errors seen on the CPU with jax 0.10.2: float32 on 2 10^6 arguments over its whole
    range, float64 on some 5000 (log1p near -0.414 and tanh near 20 are its). Not granted: sinh
    and cosh grow to 495 ULPs towards float64's overflow, erfc to 487 towards its underflow."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._puts = 0
        platform, _, number = device.partition(":")
        self._device = jax.devices(platform)[int(number or 0)]
        jax.config.update("jax_default_device", self._device)
        if platform != "cpu":
            jax.config.update("jax_default_matmul_precision", "highest")

    def allow_tf32(self) -> None:
        jax.config.update("jax_default_matmul_precision", "tensorfloat32")

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        found = []
        for platform in ("cpu", "cuda", "rocm", "tpu"):
            try:
                count = len(jax.devices(platform))
            except RuntimeError:
                continue
            alone = platform == "cpu" and count == 1
            found += ["cpu"] if alone else [f"{platform}:{i}" for i in range(count)]
        return tuple(found)

    @property
    def version(self) -> str:
        return str(jax.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        if layout not in self.layouts:
            raise Unsupported(f"jax arrays have no strides: no layout {layout!r}")
        self._puts += 1
        if self._puts % FORGET == 0:
            jax.clear_caches()
        own = array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array.astype(dtype)
        return jax.device_put(np.array(own, order="C"), self._device)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.array(tensor))

    def wait(self, tensors: Sequence[Any]) -> None:
        jax.block_until_ready(list(tensors))

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        return pulled(function, tuple(wanted), inputs, grads)

    def peak_memory(self) -> int | None:
        counts = self._device.memory_stats()
        return None if counts is None else counts.get("peak_bytes_in_use")

    def describe_device(self) -> str:
        precision = jax.config.jax_default_matmul_precision or "default"
        return f"{self._device.device_kind}, matrix products in {precision} precision"
