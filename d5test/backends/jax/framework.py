"""jax itself: with 64-bit types, quiet, and not taking a whole GPU for itself."""

from __future__ import annotations

import logging
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two workers share one GPU
logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # "no GPU, falling back"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax, nn  # noqa: E402

jax.config.update("jax_enable_x64", True)

__all__ = ["jax", "jnp", "lax", "nn"]
