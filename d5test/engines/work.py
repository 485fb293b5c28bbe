"""What a rank does in a step: the samples on which it trains, the bytes that it sends to others.

Requirements: the engine is not asked. Samples are counted in the backward pass of the model's
first child, by a hook that wrappers leave in place: a forward pass that is repeated, or made for
its loss alone, does not count. Collectives are seen below the engine, where PyTorch dispatches
them: those of DDP's reducer, which is C++, are among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d5test.case import Array
from d5test.engines.engine import Minibatch, World

NAMESPACES = ("c10d", "_c10d_functional")
NOTHING_GIVEN = ("recv", "barrier", "wait_tensor", "wrap_tensor", "check_for_nan")
"""Parts of the names of calls in which a rank gives nothing."""


@dataclass(frozen=True)
class Work:
    """Of one rank in one step.

    samples  on which it has trained
    kept     by dropout modules and forward passes: which numbers are left, (n, features)
    order    of those passes: the place of each sample in the rank's share
    formats  of the numbers that it has sent to collectives
    sent     bytes of floating numbers that it has sent to collectives: all of what is reduced or
             broadcast, its own part of what is gathered. Single numbers (losses, norms) and
             objects do not count, nor what a `DTensor` redistributes unasked, within a call: a
             norm of shards, the sum of a partial gradient in an optimizer's step
    """

    samples: int
    sent: int
    formats: frozenset[str]
    kept: tuple[tuple[Array, ...], ...] = ()
    order: tuple[int, ...] = ()


class Meter(TorchDispatchMode):  # type: ignore[misc]
    """Counts the work of this rank on a model: `read` it after each step."""

    def __init__(self, model: nn.Sequential) -> None:
        super().__init__()
        self._samples, self._sent = 0, list[tuple[str, int]]()
        self._kept: dict[str, list[Array]] = {}
        self._passed: list[torch.Tensor] = []

        def seen(gradient: torch.Tensor) -> None:
            self._samples += len(gradient)

        # a closure: a model that is copied still counts here
        def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            if output.requires_grad:
                output.register_hook(seen)
            if dropouts:
                self._passed.append(inputs[0].detach().clone())

        next(model.children()).register_forward_hook(hook)

        def dropping(name: str, module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            self._kept.setdefault(name, []).append((output != 0).numpy())

        modules = dict(model.named_modules())
        dropouts = [name for name, module in modules.items() if isinstance(module, nn.Dropout)]
        for name in dropouts:
            modules[name].register_forward_hook(partial(dropping, name))

    @contextmanager
    def step(self, made: list[Work], joined: Minibatch, world: World) -> Iterator[None]:
        """Within: a rank's step on a minibatch of all ranks, whose work is added to a list."""
        self._samples, self._sent = 0, list[tuple[str, int]]()
        self._kept.clear()
        self._passed.clear()
        with self:
            yield
        formats = frozenset(name for name, _ in self._sent)
        kept = tuple(map(tuple, self._kept.values()))
        sent = sum(size for _, size in self._sent)
        share = joined.part(world.rank, world.size).x
        order = tuple(places(share, self._passed)) if kept else ()
        made.append(Work(self._samples, sent, formats, kept, order))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in NAMESPACES:
            self._sent += sent(func, args)
        return func(*args, **(kwargs or {}))


def places(share: torch.Tensor, passed: Sequence[torch.Tensor]) -> Iterator[int]:
    """Where in a share each sample is that has passed; -1 of one that is not in it."""
    for sample in (sample for x in passed for sample in x):
        alike = (share.to(sample.dtype) == sample).flatten(1).all(1).nonzero()
        yield int(alike[0]) if len(alike) else -1


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
