"""Comparisons of jax."""

from d5test.backends.base import Table
from d5test.backends.jax.framework import jnp

rows = Table()
rows.elementwise(
    {
        "Equal": jnp.equal,
        "Greater": jnp.greater,
        "GreaterOrEqual": jnp.greater_equal,
        "Less": jnp.less,
        "LessOrEqual": jnp.less_equal,
    },
    gradient="booleans have none",
)
