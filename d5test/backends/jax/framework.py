"""jax itself: with 64-bit types, quiet, and not taking a whole GPU for itself."""

import logging
import os
from typing import Any

import numpy as np

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two workers share one GPU
logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # "no GPU, falling back"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax, nn  # noqa: E402

jax.config.update("jax_enable_x64", True)

__all__ = ["Array", "channelwise", "integers", "jax", "jnp", "lax", "nn", "wide"]
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
