"""jax, eager and under `jax.jit`, on the CPU and on accelerators.

Needs NumPy, jax and ml_dtypes. 64-bit types are on; matrix products have full precision, on
accelerators too, whose default is TF32 or bfloat16 (`describe_device` says which). Inputs that
decide shapes (axes, sizes, pads) have to be known when jax traces, so rows read them with
`integers`; the compiled mode compiles once for each value of theirs.

Where XLA adds in storage (scatter, windows, steps of a scan), or sums what was broadcast over one
axis after the other with a rounding between, a row's gradient is of class S.

`eager` and `compiled` are the backends, `table` their rows: the other modules, one a family.
`framework` imports jax for all of them.
"""

from __future__ import annotations

from d5test.backends.jax.compiled import JaxCompiled
from d5test.backends.jax.eager import Jax
from d5test.backends.jax.table import rows

__all__ = ["Jax", "JaxCompiled", "rows"]
