"""Reproducers: a fault as one file that needs the framework and NumPy alone.

`write` writes one, `prove` runs it besides. A wrong result of one call is `short`, by the
backend's template. Other files are put together by `compose`: from `data` (the operator, inputs,
expectations), the backend's source, by `closure`, and what is `copied`.
"""

from d5test.reproducer.compose import write
from d5test.reproducer.proven import prove

__all__ = ["prove", "write"]
