"""Reproducers: a fault as one file that needs the framework and NumPy alone.

`write` writes one, `prove` runs it besides. `compose` puts it together from `data` (the operator,
inputs, expectations as `literal` text) and `subject` (the backend's `rows`, taken out of their
source by `module`, `closure` and `text`); `outset`, `calls`, `claims` and `session` are what is
copied into it.
"""

from __future__ import annotations

from d5test.reproducer.compose import write
from d5test.reproducer.proven import prove

__all__ = ["prove", "write"]
