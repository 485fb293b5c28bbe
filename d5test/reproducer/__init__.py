"""Reproducers: a fault as one file that needs the framework and NumPy alone.

`write` writes one. `compose` puts it together from `data` (the operator, inputs, expectations as
`literal` text) and `subject` (the backend's `rows`, taken out of their source by `module`,
`closure` and `text`); `outset`, `standalone` and `session` are what is copied into it.
"""

from __future__ import annotations

from d5test.reproducer.compose import write

__all__ = ["write"]
