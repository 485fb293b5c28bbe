"""Windows of signals, which are symmetric in jax, and of its widest dtype."""

from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, integers, jnp

rows = Table()
WIDEST: dict[str, Any] = {"gradient": UNDERIVED, "values": (0,), "dtypes": ("float64",)}


def window(function: Any) -> Any:
    """A function of the length alone."""

    def plan(op: Any, size: Array) -> Plan:
        (n,) = integers(size)
        if op.periodic:
            raise Unsupported("jax.numpy has symmetric windows")
        return lambda size: function(n)

    return planned(plan)


rows.native("BlackmanWindow", **WIDEST)(window(jnp.blackman))
rows.native(
    "HammingWindow", contract="0.54 and 0.46", **WIDEST,
    source="https://docs.jax.dev/en/latest/_autosummary/jax.numpy.hamming.html",
)(window(jnp.hamming))  # fmt: skip
rows.native("HannWindow", **WIDEST)(window(jnp.hanning))
