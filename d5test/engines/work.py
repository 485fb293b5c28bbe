"""What a rank does in a step: the samples on which it trains, the bytes that it sends to others.

Requirements: the engine is not asked. Samples are counted in the backward pass of the model's
first child, by a hook that wrappers leave in place: a forward pass that is repeated, or made for
its loss alone, does not count. Collectives are seen below the engine, where PyTorch dispatches
them: those of DDP's reducer, which is C++, are among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d5test.case import Array

NAMESPACES = ("c10d", "_c10d_functional")
NOTHING_GIVEN = ("recv", "barrier", "wait_tensor", "wrap_tensor", "check_for_nan")
"""Parts of the names of calls in which a rank gives nothing."""


@dataclass(frozen=True)
class Work:
    """Of one rank in one step.

    samples  on which it has trained
    kept     by dropout modules: which numbers each has left in the forward passes, (n, features)
    formats  of the numbers that it has sent to collectives
    sent     bytes of floating numbers that it has sent to collectives: all of what is reduced or
             broadcast, its own part of what is gathered. Single numbers (losses, norms) and
             objects do not count, nor what a `DTensor` redistributes unasked, within a call: a
             norm of shards, the sum of a partial gradient in an optimizer's step
    """

    samples: int
    sent: int
    formats: frozenset[str]
    kept: tuple[Array, ...] = ()


class Meter(TorchDispatchMode):  # type: ignore[misc]
    """Counts the work of this rank on a model: `read` it after each step."""

    def __init__(self, model: nn.Sequential) -> None:
        super().__init__()
        self._samples, self._sent = 0, list[tuple[str, int]]()
        self._kept: dict[str, list[Array]] = {}

        def seen(gradient: torch.Tensor) -> None:
            self._samples += len(gradient)

        # a closure: a model that is copied still counts here
        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            if output.requires_grad:
                output.register_hook(seen)

        next(model.children()).register_forward_hook(hook)

        def dropping(name: str, module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            self._kept.setdefault(name, []).append((output != 0).numpy())

        for name, module in model.named_modules():
            if isinstance(module, nn.Dropout):
                module.register_forward_hook(partial(dropping, name))

    @contextmanager
    def step(self, made: list[Work]) -> Iterator[None]:
        """Within: a step, whose work is added to a list."""
        self._samples, self._sent = 0, list[tuple[str, int]]()
        self._kept.clear()
        with self:
            yield
        formats = frozenset(name for name, _ in self._sent)
        kept = tuple(np.concatenate(parts) for parts in self._kept.values())
        made.append(Work(self._samples, sum(size for _, size in self._sent), formats, kept))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in NAMESPACES:
            self._sent += sent(func, args)
        return func(*args, **(kwargs or {}))


def sent(func: Any, args: Any) -> list[tuple[str, int]]:
    """What a call of a collective gives: an input, or else a tensor. Its format and bytes."""
    if any(word in func.__name__ for word in NOTHING_GIVEN):
        return []
    named = {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)}  # noqa: SLF001
    inputs = [value for name, value in named.items() if name.startswith("input")]
    tensors = tree_leaves(inputs or [v for n, v in named.items() if n.startswith("tensor")])
    return [
        (str(t.dtype).removeprefix("torch."), t.nbytes)
        for t in tensors
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 1
    ]
