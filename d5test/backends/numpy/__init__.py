"""The references themselves as a backend, which needs nothing else installed.

`eager` is the backend; `tape` records its calls, so that they can be differentiated.
"""

from __future__ import annotations

from d5test.backends.numpy.eager import Numpy, NumpyUpdater, Reference

__all__ = ["Numpy", "NumpyUpdater", "Reference"]
