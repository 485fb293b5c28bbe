"""What jax chooses by values: how much that is, its functions are told."""

from typing import Any

import numpy as np

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, jax, jnp

rows = Table()


def known(x: Array) -> Any:
    """The values, which decide how much is chosen. Raises `Unsupported` where numbers are traced,
    as whole numbers and masks are not where a shape needs them.
    """
    if isinstance(x, jax.core.Tracer) and jnp.issubdtype(x.dtype, jnp.inexact):
        raise Unsupported("under jax.jit it has to be told how much is chosen")
    return np.asarray(x)


@rows.native("NonZero", gradient=UNDERIVED, values=(0,))
@planned
def nonzero(op: Any, x: Array) -> Plan:
    n = int(np.count_nonzero(known(x)))
    return lambda x: jnp.stack(jnp.nonzero(x, size=n))


@rows.native("Unique", gradient=UNDERIVED, values=(0,))
@planned
def unique(op: Any, x: Array) -> Plan:
    if not op.sorted:
        raise Unsupported("jnp.unique does not keep the order in which elements come first")
    axis, n = op.axis, np.unique(known(x), axis=op.axis).shape[op.axis or 0]

    def call(x: Array) -> Any:
        y, first, inverse, counts = jnp.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis, size=n
        )
        return y, first, inverse.reshape(-1), counts

    return call
