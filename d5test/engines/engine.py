"""What an engine owes, and what it is given.

An engine takes a PyTorch module, an optimizer and a plan, and trains on the ranks of the default
process group of `torch.distributed`, which is there before `start` and ended after `close`. It is
a class that is called without arguments. `lacks` says what it does not do, and why: such a case is
skipped. What it cannot do on these ranks, it says by raising `d5test.backends.base.Unsupported` on
all of them, best in `check`, before they have met, and not after the first step, when others wait
for each that stays away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from d5test.backends.base import Unsupported

TINY = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to a norm before it divides by it."""


@dataclass(frozen=True)
class World:
    """All ranks, of which this is one, and the mesh in which they are to be.

    mesh  the size of each axis, the outermost first
    """

    rank: int
    size: int
    mesh: Mapping[str, int]


@dataclass(frozen=True)
class Minibatch:
    """Inputs (n, ...) and the class of each prediction (n, ...).

    factors  of a sequential run with dropout: by what each module multiplies, (n, features)
    """

    x: torch.Tensor
    y: torch.Tensor
    factors: tuple[torch.Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    def part(self, number: int, count: int) -> Minibatch:
        """One of so many parts of consecutive samples; the first ones are larger by at most 1."""
        x, y, *factors = (
            torch.tensor_split(tensor, count)[number] for tensor in (self.x, self.y, *self.factors)
        )
        return Minibatch(x, y, tuple(factors))


def gathered(own: Any, size: int) -> list[Any]:
    """What each of the ranks says, by way of PyTorch's process group."""
    every: list[Any] = [None] * size
    dist.all_gather_object(every, own)
    return every


def mean_loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of outputs (n, ..., classes)."""
    return functional.cross_entropy(output.flatten(end_dim=-2), y.flatten())


@dataclass(frozen=True)
class Rule:
    """An optimizer of PyTorch that has yet to be given its parameters."""

    kind: type[torch.optim.Optimizer]
    options: Mapping[str, Any]

    def __call__(self, parameters: Iterable[torch.Tensor], **more: Any) -> Any:
        """The optimizer of these."""
        return self.kind(parameters, **self.options, **more)


Side = Literal["columns", "rows"]
SIDE: Mapping[Side, int] = {"columns": 0, "rows": 1}
"""Of the weight of a linear module, which tensor parallelism splits."""


@dataclass(frozen=True)
class Plan:
    """How a step is to be made.

    accumulate  parts in which a rank takes its share; gradients are added up, and stepped once
    clip        the norm to which the gradient of all parameters is clipped, as
                `torch.nn.utils.clip_grad_norm_` does
    split       linear modules whose weights tensor parallelism splits, and by what: the columns of
                a module's output (rows of its weight), or the rows of its input
    """

    accumulate: int = 1
    clip: float = inf
    split: Mapping[str, Side] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """How many elements of each parameter this rank holds, and of the optimizer's state of it.

    By sequential names. A parameter that is not here may be left out. `state` is that of one slot.
    """

    parameters: Mapping[str, int]
    state: Mapping[str, int]


OWED = ("start", "wrap", "step", "parameters", "placements")
"""The methods that each engine has of its own."""
DECLARED: Mapping[str, type] = {
    **dict.fromkeys(("statistics", "rounding", "computes"), str),
    **dict.fromkeys(("averages", "seen"), bool),
    "split": Mapping,
}
"""What is read of an engine once it is wrapped, and what that is."""


class Engine:
    """An engine of parallel training. Derive yours from this.

    name      as it stands in messages; of the class itself, else how it was asked for
    version   of the software that it is; PyTorch's if yours says nothing
    axes      of the meshes that it takes, the outermost first; the last one has all ranks if
              `--mesh` says nothing else
    along     the axis without which it would be another engine, such as `tp`: a mesh that lacks it
              is skipped. Empty: any of `axes` will do
    rounding  the format to which gradients are rounded on their way; empty: none
    computes  the format of the forward and the backward pass, where the parameters that are
              stepped are wider; empty: theirs
    averages  whether ranks average their parameters after a step, instead of their gradients: each
              then has errors of its own, and the mean has more
    lacks     features of a case that it has not, and why: `accumulate`, `clip`, `tied`, `uneven`,
              `resumed`, `adamw`, `decay`, or the name of a model, as
              `d5test.engines.cases.Case.model` has it
    split     linear modules that it splits along `tp` beside those of the plan, and by what
    norm      that of the gradient in the last step, before it was clipped, if the plan clips
    seen      whether PyTorch calls the model and the collectives, so that samples and bytes are
              counted: not of an engine that computes in another framework
    threads   whether ranks may be threads of one process, each with process groups of its own: not
              of an engine that keeps anything for all of the process
    statistics  by what a rank normalises in batch normalisation, and which running statistics it
              moves by that: `own`, by its share of the samples, and its own; `first`, by its
              share, and those that rank 0 had after the step before, as
              `DistributedDataParallel` with `broadcast_buffers`; `joined`, by all samples, so
              that all ranks have the same, as `SyncBatchNorm`. Empty: nothing is said, and a
              model with buffers is skipped
    """

    name = ""
    seen = True
    threads = False
    version = f"torch {torch.__version__}"
    axes: tuple[str, ...] = ("dp",)
    along = ""
    rounding = ""
    computes = ""
    averages = False
    statistics: Literal["", "own", "first", "joined"] = ""
    lacks: Mapping[str, str] = MappingProxyType({})
    split: Mapping[str, Side] = MappingProxyType({})
    norm = nan

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """Raise `Unsupported` if it cannot train this model so on these ranks, before `start`.

        All ranks must come to the same. `samples` are those of each step's joined minibatch.
        """

    def start(self, world: World) -> None:
        """Get ready on these ranks."""
        raise self._owed("start(world)")

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """Distribute the model, which is the same at each rank, and make its optimizer."""
        raise self._owed("wrap(model, optimizer, plan)")

    def step(self, joined: Minibatch) -> float:
        """Step on the minibatch of all ranks, of which this one takes its share.

        The mean loss of all of it before the step, at every rank.
        """
        raise self._owed("step(joined)")

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """All parameters, whole, by their names in the model, at every rank."""
        raise self._owed("parameters()")

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """All buffers of the model, as they are at this rank; of an engine with `statistics`."""
        raise self._owed("buffers()")

    def placements(self) -> Held:
        """What this rank holds."""
        raise self._owed("placements()")

    def gives(self, itemsize: int) -> int | None:
        """The formula of the bytes of floating numbers that this rank gives to collectives.

        In the step that was made last, where a number of the gradients has so many bytes on its
        way; what counts is in `d5test.engines.work.Work`. `None`: no formula is known, so that
        bytes are not judged. An engine that names a rounding owes one: that its gradients are
        short is seen by their bytes.
        """
        return None

    def save(self, folder: Path) -> None:
        """Write a checkpoint of parameters and of the optimizer's state, after a step.

        All ranks are given the same folder, which is empty. Nobody reads before all have returned.
        """
        raise Unsupported(f"{self.name or type(self).__name__} writes no checkpoint")

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint that an engine of this class wrote, perhaps on another mesh.

        It comes after `wrap`. The folder is gone after the last step.
        """
        raise self._owed("load(folder)")

    def close(self) -> None:
        """Let go of what `start` took."""

    def require_declarations(self) -> None:
        """Raise a `TypeError` where what d5test reads of an engine is something of its own."""
        for name, kind in DECLARED.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a {type(value).__name__}, and d5test reads "
                    f"a {kind.__name__} by that name: give yours another one"
                )

    def _owed(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {method}: see docs/engines.md")
