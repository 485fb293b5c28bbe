"""Reproducers: a fault as one file that needs the framework and NumPy alone.

`write` writes one; `prove` (in `proven`) writes and runs it, by `trial`, the short one first.
`short` says one call by the backend's template: a wrong result, an exception, a call that should
be refused. Other files are put together by `compose`: from `data` (the operator, inputs,
expectations), the backend's source, by `closure`, and what is `copied`. `mark` is what a file says
of itself.
"""

from d5test.reproducer.compose import write
from d5test.reproducer.proven import prove

__all__ = ["prove", "write"]
