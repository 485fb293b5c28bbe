"""PyTorch, eager and compiled.

Requirements: torch 2.11 or later. Float32 multiplications are IEEE's, not TF32's. A row calls what
a PyTorch user would call; where torch has one function for the usual attributes only, the row
composes the others and says so in its docstring. Views (reshape, permute, split, slices, expand)
are returned as torch returns them: sharing memory with the input.

`eager` and `compiled` are the backends, `table` their rows: the other modules, one a family.
"""

from __future__ import annotations

from d5test.backends.torch.compiled import TorchCompiled
from d5test.backends.torch.eager import Torch
from d5test.backends.torch.table import rows

__all__ = ["Torch", "TorchCompiled", "rows"]
