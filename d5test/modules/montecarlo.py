"""Monte Carlo arithmetic on PyTorch: each primitive's result in float64, off by a rounding error.

A `TorchDispatchMode` sees what a function, a module or a backward pass calls, below autograd.
What is composed is decomposed first, by torch's own table, so that an error can be made at each
primitive: errors at the outputs alone would accuse honest normalisations of a large mean 20 times
over. What only moves, chooses or compares numbers is exact.

Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from d5test.numerics.elementary import TABLE
from d5test.numerics.perturbed import walk
from d5test.numerics.sampled import NO_MORE, Error


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXACT = _words("""
    abs alias amax amin arange argmax argmin as_strided as_strided_scatter bernoulli
    broadcast_in_dim cat ceil channel_shuffle clamp clamp_max clamp_min clone
    constant_pad_nd convert_element_type copy copy_to detach diag_embed diagonal
    diagonal_scatter embedding empty empty_like empty_strided expand eye fill flip floor
    full full_like gather hardtanh hardtanh_backward im2col index index_select isinf isnan
    item lift lift_fresh lift_fresh_copy local_scalar_dense masked_fill masked_scatter max
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d maximum min
    minimum narrow native_dropout neg new_empty new_empty_strided new_full new_ones
    new_zeros nonzero normal_ ones ones_like permute pixel_shuffle pixel_unshuffle rand
    rand_like randint randn randn_like random randperm reflection_pad1d reflection_pad2d
    reflection_pad3d relu repeat replication_pad1d replication_pad2d replication_pad3d
    reshape resize roll round scalar_tensor scatter select select_backward select_scatter
    set_ sgn sign slice slice_backward slice_scatter sort split split_with_sizes squeeze
    stack t threshold threshold_backward to_copy topk transpose tril triu trunc unbind
    unfold uniform unsafe_index unsqueeze upsample_nearest1d upsample_nearest2d
    upsample_nearest3d value_selecting_reduction_backward view where zero zeros zeros_like
""")
"""Functions of torch that round nothing: what views, moves, chooses or compares."""
SUMS = _words("""
    adaptive_avg_pool2d adaptive_avg_pool2d_backward adaptive_avg_pool3d
    adaptive_avg_pool3d_backward addbmm addmm addmv addr avg_pool2d avg_pool2d_backward
    avg_pool3d avg_pool3d_backward baddbmm bmm col2im convolution convolution_backward
    cumsum dot embedding_dense_backward im2col_backward index_add index_put linear
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward mm mv
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    scatter_add sum unfold_backward unsafe_index_put upsample_bilinear2d_backward
    upsample_linear1d upsample_linear1d_backward upsample_nearest1d_backward
    upsample_nearest2d_backward upsample_nearest3d_backward upsample_trilinear3d
    upsample_trilinear3d_backward vdot
""")
"""Functions that add up products of their arguments, each at most once in a product."""
WINDOWS: Mapping[str, int] = {
    **{f"avg_pool{n}d": 1 for n in (2, 3)},
    **{f"avg_pool{n}d_backward": 2 for n in (2, 3)},
    **{f"max_pool{n}d_with_indices_backward": 2 for n in (2, 3)},
    "col2im": 2,
}
"""Sums over windows, with the position of the argument that is their size."""
COUNTED = frozenset(
    {"cumsum", "embedding_dense_backward", "index_add", "index_put", "scatter_add"}
    | {"unsafe_index_put"}
)
"""Sums of which an element may have any number of terms."""
ACCUMULATING = frozenset({"index_put", "unsafe_index_put"})
"""Functions that add where an argument says so, and else write."""
ULPS: Mapping[str, float] = {
    **{function.__name__: row.ulps for function, row in TABLE.items()},
    "add": 0.5,
    "sub": 0.5,
    "mul": 0.5,
    "div": 0.5,
    "reciprocal": 0.5,
    "sqrt": 0.5,
    "rsqrt": 2.0,
    "pow": 4.0,
    "sigmoid": TABLE[np.exp].ulps + 2,
}
"""By how many ULPs an elementary function may be off."""
OTHER = 4.0
"""ULPs of a function of which nothing is known. It is reported."""


class MonteCarlo(TorchDispatchMode):  # type: ignore[misc]
    """Within: what torch computes goes through `error`.

    `ulps` are elementary functions that are granted more than `ULPS` says. `called` are those that
    were called; what is not in `ULPS` either is granted `OTHER`, since it has no decomposition.
    """

    def __init__(self, error: Error, ulps: Mapping[str, float] = NO_MORE) -> None:
        super().__init__()
        self._error = error
        self._ulps = {**ULPS, **{n: max(u, ULPS.get(n, 0.0)) for n, u in ulps.items()}}
        self.called: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(function)
        if function.is_view or name in EXACT:
            return function(*args, **kwargs)
        if name not in SUMS and name not in ULPS:
            composed = OWN.get(name) or decomposition_table.get(function)
            if composed is not None:
                with self:
                    result = composed(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        if name in ACCUMULATING and not any(a is True for a in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        with np.errstate(all="ignore"):
            squares = _squares(function, name, args, kwargs)
            terms = partial(_terms, function, name, args=args, kwargs=kwargs)
            counts = {}
            if name in COUNTED:  # before one of the arguments is written to
                counts[0] = terms(0, None)
            result = function(*args, **kwargs)
            several = isinstance(result, tuple | list)
            for k, y in enumerate(result if several else (result,)):
                if _is_real(y) and y.numel():
                    sizes = None
                    if squares is not None:
                        sizes = squares[k], counts[k] if k in counts else terms(k, y)
                    self._err(name, y, sizes)
        return result

    def _err(self, name: str, y: torch.Tensor, sum_of: Any) -> None:
        """Let a result be off, in place; `sum_of` are the squares of a sum, and their number."""
        value = y.detach().numpy()
        if sum_of is not None:
            noisy = self._error(value, np.abs(value), walk(value, *sum_of))
        else:
            self.called.add(name)
            granted = 2 * self._ulps.get(name, OTHER)
            noisy = self._error(value, granted * np.abs(value), None)
        value[...] = noisy


def _name(function: Any) -> str:
    """What a function of torch is called, without a leading or trailing underscore."""
    name: str = function._schema.name.rpartition("::")[2]  # noqa: SLF001 (it has no other name)
    return name.strip("_")


def _is_real(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _squares(function: Any, name: str, args: Any, kwargs: Any) -> Sequence[Any] | None:
    """For each result of a sum of products, the sum of their squares; `None` of what is none."""
    if name not in SUMS:
        return None

    def square(x: Any) -> Any:
        return x * x if _is_real(x) else x

    weights = ("alpha", "beta")
    squared = function(
        *map(square, args), **{k: v * v if k in weights else square(v) for k, v in kwargs.items()}
    )
    results = squared if isinstance(squared, tuple | list) else (squared,)
    return [None if q is None else np.abs(q.detach().numpy()) for q in results]


def _terms(function: Any, name: str, k: int, y: torch.Tensor, args: Any, kwargs: Any) -> Any:
    """How many products an element of result `k` has, at most, or about; or each of them has."""
    if name in COUNTED:  # of ones the sum is their number
        ones = [torch.ones_like(x) if _is_real(x) else x for x in args]
        return np.abs(function(*ones, **kwargs).numpy())
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if name == "convolution":
        _, weight, _, stride, _, _, transposed, _, groups = args
        return _within(weight, stride, groups, spread=transposed)
    if name == "convolution_backward":
        dy, x, weight, _, stride, _, _, transposed, _, groups, _ = args
        if k == 0:
            return _within(weight, stride, groups, spread=not transposed)
        summed = x if transposed and k == 1 else dy
        return int(max(summed.numel() // max(summed.shape[1], 1), 1))
    if name in WINDOWS:
        return int(prod(args[WINDOWS[name]]))
    if name in ("mm", "bmm", "mv", "dot", "vdot", "linear"):
        return int(tensors[0].shape[-1])
    if name in ("addmm", "addmv", "baddbmm", "addbmm"):
        return int(tensors[1].shape[-1]) + 1
    return int(max((x.numel() for x in tensors), default=1) // max(y.numel(), 1))


def _within(weight: torch.Tensor, stride: Sequence[int], groups: int, *, spread: bool) -> int:
    """How many weights meet in an element; fewer where a stride spreads the windows."""
    if not spread:
        return int(prod(weight.shape[1:]))
    steps = list(stride) * (weight.ndim - 2 if len(stride) == 1 else 1)
    count = prod(-(-side // step) for side, step in zip(weight.shape[2:], steps, strict=True))
    return int(weight.shape[0] // groups * count)


def _mean(x: torch.Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    total = x.sum(dim, keepdim) if dim is not None else x.sum()
    return total / (x.numel() / max(total.numel(), 1))


def _var_mean(
    x: torch.Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
    correction: Any = None,
) -> Any:  # fmt: skip
    """The variance as the mean square of deviations, and the mean."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    dims = list(range(x.ndim)) if dim is None or dim == [] else dim
    mean = _mean(x, dims, True)
    deviations = x - mean
    count = x.numel() / max(mean.numel(), 1)
    less = correction if correction is not None else float(unbiased is not False)
    variance = (deviations * deviations).sum(dims, keepdim) / max(count - less, 0)
    return variance, mean if keepdim else mean.reshape(variance.shape)


def _std_mean(*args: Any, **more: Any) -> Any:
    variance, mean = _var_mean(*args, **more)
    return variance.sqrt(), mean


def _softmax(x: torch.Tensor, dim: int, *_: Any, **__: Any) -> Any:
    """By the logarithm of the sum, as fused attention keeps it for its gradient.

    It errs by a rounding of that logarithm, which e / sum(e) does not; both are in use.
    """
    largest = x.amax(dim, keepdim=True) if x.numel() else x
    total = largest + (x - largest).exp().sum(dim, keepdim=True).log()
    return (x - total).exp()


OWN: Mapping[str, Callable[..., Any]] = {
    "mean": _mean,
    "softmax": _softmax,
    "var_mean": _var_mean,
    "var": lambda *args, **more: _var_mean(*args, **more)[0],
    "std": lambda *args, **more: _var_mean(*args, **more)[0].sqrt(),
    "std_mean": _std_mean,
}
"""Compositions in place of those of torch's table, which end in what is to be composed."""
