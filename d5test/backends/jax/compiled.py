"""jax with each operator, and its gradient, under `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from d5test.backends.jax.eager import TEMPLATE, Jax, pulled
from d5test.backends.jax.framework import jax, jnp


class Compiled:
    """A function under `jax.jit`, counting what is compiled.

    Whole numbers are traced like all inputs. A function that cannot be traced so, since they
    decide shapes, is compiled once for each value of theirs.
    """

    def __init__(self, function: Callable[..., Any], count: Callable[[], None]) -> None:
        self.function, self._count = function, count
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
        whole = tuple(x if is_whole(x) else None for x in inputs)
        if self._latest is None or any(a is not b for a, b in zip(whole, self._last, strict=True)):
            values = (None if x is None else (x.shape, np.asarray(x).tobytes()) for x in whole)
            key = tuple(values)
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


def is_whole(x: Any) -> bool:
    return x is not None and bool(jnp.issubdtype(x.dtype, jnp.integer))


class JaxCompiled(Jax):
    """jax with each operator, and its gradient, under `jax.jit`."""

    mode = "compiled"
    template = replace(TEMPLATE, compiled="jax.jit({function})")

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._compiled = 0
        self._pulls = lru_cache(maxsize=64)(self._compile_pull)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Compiled(function, self._count)

    def compilations(self) -> int | None:
        return self._compiled

    def reset(self) -> None:
        self._pulls.cache_clear()
        jax.clear_caches()

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        pull = self._pulls(function, tuple(wanted), len(inputs))
        outputs, gradients = pull(*inputs, *grads)
        return outputs, list(gradients)

    def _compile_pull(
        self, function: Callable[..., Any], wanted: tuple[int, ...], n: int
    ) -> Callable[..., Any]:
        if isinstance(function, Compiled):
            function = function.function

        def pull(*every: Any) -> Any:
            before = self._compiled
            result = pulled(function, wanted, every[:n], every[n:])
            self._compiled = before  # what is traced inside is no compilation of its own
            return result

        return self.compile(pull)

    def _count(self) -> None:
        self._compiled += 1
