"""Arrays as the arguments that jax takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from d5test.backends.jax.framework import jnp

Array = Any


def integers(x: Array) -> tuple[int, ...]:
    """The whole numbers of a vector that decides a shape. A tracer raises, see `Compiled`."""
    return tuple(int(i) for i in np.asarray(x).reshape(-1))


def channelwise(v: Array, x: Array) -> Array:
    """One value a channel, (c,), as it broadcasts to x (n, c, ...)."""
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def wide(x: Array) -> Array:
    """In float32 at least."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
