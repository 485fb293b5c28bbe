"""jax, eager and under `jax.jit`, on the CPU and on accelerators.

Needs NumPy, jax and ml_dtypes. 64-bit types are on; matrix products have full precision, on
accelerators too, whose default is TF32 or bfloat16 (`describe_device` says which). Inputs that
decide shapes (axes, sizes, pads) have to be known when jax traces, so rows read them with
`integers`; the compiled mode compiles once for each value of theirs.

Where XLA adds in storage (scatter, windows, steps of a scan), or sums what was broadcast over one
axis after the other with a rounding between, a row's gradient is of class S.

The other modules have the rows, one per family. `framework` imports the framework for all of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import (
    Backend,
    Forms,
    Function,
    Pulled,
    Pushed,
    Row,
    Table,
    Template,
    Tensors,
    Unsupported,
    bits,
    from_bits,
)
from d5test.backends.jax.forms import forms, of_new_rows
from d5test.backends.jax.framework import jax, jnp
from d5test.backends.jax.kernels import of_compiled, of_eager
from d5test.backends.jax.optimizers import JaxReference, OptaxCompiled

rows = Table.of(__name__)
TEMPLATE = Template(
    imports='import jax\n\njax.config.update("jax_enable_x64", True)',
    tensor='jax.numpy.array({values}, dtype="{dtype}")',
    array="np.array({y}, float)",
    dtype="{y}.dtype.name",
    gradient="y, pull = jax.vjp(lambda {inputs}: {call}, {inputs})\nresults = pull(dy)",
    tangent="_, t = jax.jvp(lambda {inputs}: {call}, ({inputs},), ({tangents},))\nresults = [t]",
    second_gradient="gradient = lambda {inputs}: jax.vjp(lambda {inputs}: {call}, {inputs})[1](dy)"
    "\nresults = jax.vjp(gradient, {inputs})[1](({tangents},))",
)
UNDERIVED = (
    "can't apply forward-mode differentiation",
    "can't apply forward-mode autodiff",
    "cannot be differentiated",
)
"""What jax says of a function of a user's own that has one derivative, and no other."""
FORGET = 500
"""Tensors that are put until compiled shapes are forgotten. They pile up, at about 1 MB a case,
and would end a long run for want of memory, which would look like a fault of jax."""


@contextmanager
def refusing() -> Iterator[None]:
    """Within: a derivative that jax does not have is unsupported."""
    try:
        yield
    except NotImplementedError as error:
        raise Unsupported(f"jax: {error}") from error
    except (TypeError, ValueError) as error:
        if not any(phrase in str(error) for phrase in UNDERIVED):
            raise
        raise Unsupported(f"jax: {str(error).splitlines()[0]}") from error


def of_wanted(function: Function, wanted: Sequence[int], inputs: Tensors) -> Function:
    """The function of the inputs at `wanted`, the others as they are; it returns a tuple."""

    def of(*chosen: Any) -> tuple[Any, ...]:
        every = list(inputs)
        for i, x in zip(wanted, chosen, strict=True):
            every[i] = x
        result = function(*every)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    return of


def pulled(
    function: Function, wanted: Sequence[int], inputs: Tensors, grads: Tensors, times: int = 1
) -> Pulled:
    """The outputs, and the gradients of those that have upstream ones, by the last of `times`."""
    chosen = [inputs[i] for i in wanted]
    of = of_wanted(function, wanted, inputs)
    flowing = [i for i, dy in enumerate(grads) if dy is not None]

    def split(*chosen: Any) -> tuple[list[Any], tuple[Any, ...]]:
        outputs = of(*chosen)
        return [outputs[i] for i in flowing], outputs

    with refusing():
        pulled_from, pull, outputs = jax.vjp(split, *chosen, has_aux=True)
        pairs = zip(pulled_from, (grads[i] for i in flowing), strict=True)
        upstream = [jnp.asarray(dy, y.dtype) for y, dy in pairs]
        *_, gradients = (pull(upstream) for _ in range(times))
        return outputs, list(gradients)


class Jax(Backend):
    """jax, operation by operation."""

    framework = "jax"
    rows = rows
    forms = forms
    offers: ClassVar[Mapping[str, str]] = {
        "jax.nn": "jax.nn",
        "jnp": "jax.numpy",
        "lax": "jax.lax",
        "jax.scipy.special": "jax.scipy.special",
        "jax.Array": "jax.Array",
    }
    compiles_shapes = True
    template = TEMPLATE
    libraries = ("/jaxlib/",)
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
    def transformed(cls, rows: Mapping[str, Row]) -> Forms:
        return of_new_rows(rows)

    def refusal(self, error: Exception) -> str:
        """`The precision 'F16_F16_F32' is not supported by dot_general on CPU`, for one."""
        refused = isinstance(error, ValueError) and "is not supported by dot_general" in str(error)
        return str(error) if refused else ""

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        devices: list[str] = []
        for platform in ("cpu", "cuda", "rocm", "tpu"):
            try:
                count = len(jax.devices(platform))
            except RuntimeError:
                continue
            alone = platform == "cpu" and count == 1
            devices += ["cpu"] if alone else [f"{platform}:{i}" for i in range(count)]
        return tuple(devices)

    def nondeterministic(self, operator: str, what: str) -> str:
        flag = "xla_gpu_deterministic_ops"
        if self._device.platform != "gpu" or flag in os.environ.get("XLA_FLAGS", ""):
            return ""
        return f"XLA is deterministic on a GPU under XLA_FLAGS=--{flag}=true alone"

    def lost(self, error: Exception) -> bool:
        return "CUDA_ERROR_" in str(error)

    @property
    def version(self) -> str:
        return str(jax.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        if layout not in self.layouts:
            raise Unsupported(f"jax arrays have no strides: no layout {layout!r}")
        self._puts += 1
        if self._puts % FORGET == 0:
            jax.clear_caches()
        values = from_bits(array, dtype).astype(dtype)
        return jax.device_put(np.array(values, order="C"), self._device)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.array(tensor))

    def wait(self, tensors: Sequence[Any]) -> None:
        jax.block_until_ready(list(tensors))

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        return pulled(function, tuple(wanted), inputs, grads)

    def vjp_again(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        return pulled(function, tuple(wanted), inputs, grads, times=2)

    def jvp(self, function: Function, inputs: Tensors, tangents: Tensors) -> Pushed:
        moving = [i for i, t in enumerate(tangents) if t is not None]
        primals, moves = ([xs[i] for i in moving] for xs in (inputs, tangents))
        with refusing():
            outputs, moved = jax.jvp(of_wanted(function, moving, inputs), primals, moves)
        return outputs, [None if t.dtype == jax.dtypes.float0 else t for t in moved]

    def hvp(
        self,
        function: Function,
        inputs: Tensors,
        grads: Tensors,
        tangents: Tensors,
        wanted: Sequence[int],
    ) -> Pulled:
        """The gradient of <gradient, tangents>: Hessians are symmetric."""

        def gradients(*every: Any) -> list[Any]:
            return pulled(function, wanted, every, grads)[1]

        moves = [tangents[i] for i in wanted]
        outputs = of_wanted(function, (), inputs)()
        return outputs, pulled(gradients, wanted, inputs, moves)[1]

    def kernel_names(self, function: Function, inputs: Tensors) -> tuple[str, ...]:
        return tuple(dict.fromkeys(of_eager(function, inputs)))

    def peak_memory(self) -> int | None:
        counts = self._device.memory_stats()
        return None if counts is None else counts.get("peak_bytes_in_use")

    def describe_device(self) -> str:
        precision = jax.config.jax_default_matmul_precision or "default"
        return f"{self._device.device_kind}, matrix products in {precision} precision"


class Compiled:
    """A function under `jax.jit`, counting what is compiled.

    Whole numbers, masks and arguments (`values` of the row) are traced like all inputs. A function
    that cannot be traced so, since they decide shapes, is compiled once for each value of theirs.
    """

    def __init__(self, function: Function, count: Callable[[], None]) -> None:
        self.function, self._count = function, count
        self.values: tuple[int, ...] = getattr(function, "values", ())
        self._dynamic = jax.jit(self._traced)
        self._jitted: dict[Any, Callable[..., Any]] = {}
        self._last: tuple[Any, ...] = ()
        self._latest: Callable[..., Any] | None = None
        self._needs_values = False

    def __call__(self, *inputs: Any) -> Any:
        if not self._needs_values:
            try:
                return self._dynamic(*inputs)
            except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
                self._needs_values = True
        whole = tuple(
            x
            if x is not None and (i in self.values or not jnp.issubdtype(x.dtype, jnp.inexact))
            else None
            for i, x in enumerate(inputs)
        )
        if self._latest is None or any(a is not b for a, b in zip(whole, self._last, strict=True)):
            key = tuple(None if x is None else (x.shape, np.asarray(x).tobytes()) for x in whole)
            if key not in self._jitted:
                self._jitted[key] = jax.jit(partial(self._with_values, whole))
            self._last, self._latest = whole, self._jitted[key]
        return self._latest(
            *(None if w is not None else x for w, x in zip(whole, inputs, strict=True))
        )

    def _with_values(self, whole: tuple[Any, ...], *rest: Any) -> Any:
        return self._traced(*(r if w is None else w for w, r in zip(whole, rest, strict=True)))

    def _traced(self, *inputs: Any) -> Any:
        result = self.function(*inputs)
        self._count()
        return result


class JaxCompiled(Jax):
    """jax with each operator, and its gradient, under `jax.jit`."""

    mode = "compiled"
    compiles_quickly = True
    template = replace(TEMPLATE, compiled="jax.jit({function})")

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._compiled = 0
        self._pulls = lru_cache(maxsize=64)(self._compile_pull)

    def compile(self, function: Function) -> Function:
        return Compiled(function, self._count)

    def kernel_names(self, function: Function, inputs: Tensors) -> tuple[str, ...]:
        return tuple(dict.fromkeys(of_compiled(function, inputs)))

    def compilations(self) -> int | None:
        return self._compiled

    def reset(self) -> None:
        self._pulls.cache_clear()
        jax.clear_caches()

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        pull = self._pulls(function, tuple(wanted), len(inputs))
        outputs, gradients = pull(*inputs, *grads)
        return outputs, list(gradients)

    def _compile_pull(
        self, function: Function, wanted: tuple[int, ...], n: int
    ) -> Callable[..., Any]:
        if isinstance(function, Compiled):
            function = function.function

        def pull(*every: Any) -> Any:
            before = self._compiled
            result = pulled(function, wanted, every[:n], every[n:])
            self._compiled = before  # what is traced inside is no compilation of its own
            return result

        pull.values = getattr(function, "values", ())  # type: ignore[attr-defined]
        return self.compile(pull)

    def _count(self) -> None:
        self._compiled += 1
