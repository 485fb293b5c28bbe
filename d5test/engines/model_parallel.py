"""Engines of PyTorch that divide the model: tensor parallelism and pipelines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.utils import clip_grads_with_norm_

from d5test.backends.base import Unsupported
from d5test.engines.data_parallel import MISMATCH, DataParallel, TorchEngine, sharded, whole
from d5test.engines.engine import (
    Minibatch,
    Plan,
    Rule,
    World,
    gathered,
    mean_loss,
)
from d5test.engines.models import Branched, check_split

STYLES = {"columns": ColwiseParallel, "rows": RowwiseParallel}
CLIP = "torch's clip_grad_norm_ refuses DTensors beside tensors (its issue 180346)"


class Divided(TorchEngine):
    """Parts of the model along some axes; along `dp` and `fsdp` it is FSDP2's `fully_shard`."""

    plan: Plan

    def start(self, world: World) -> None:
        """With all axes, if only of one rank: `fully_shard` replicates along the first of two."""
        super().start(replace(world, mesh={axis: world.mesh.get(axis, 1) for axis in self.axes}))

    @property
    def replicas(self) -> tuple[int, int]:
        """Which share of the samples this rank has, and how many there are."""
        mesh = self.world.mesh
        count = mesh["dp"] * mesh["fsdp"]
        return self.world.rank // (self.world.size // count), count

    def divide(self, model: nn.Sequential) -> None:
        """Along `tp`, by the plan."""
        parallelize_module(model, self.mesh["tp"], self.styles(model))

    def styles(self, model: nn.Sequential) -> dict[str, ParallelStyle]:
        """What becomes of modules, by name."""
        names = {name for name, _ in model.named_modules()}
        return {name: STYLES[by]() for name, by in self.plan.split.items() if name in names}

    def sharded(self, model: nn.Sequential, **options: Any) -> nn.Module:
        """Along `dp` and `fsdp`, with options of `fully_shard`."""
        several = self.replicas[1] > 1
        return sharded(model, self.mesh["dp", "fsdp"], **options) if several else model


class TensorParallel(Divided, DataParallel):
    """`parallelize_module`: ranks along `tp` have the same samples, and parts of the weights."""

    name = "torch-tp"
    axes = ("dp", "fsdp", "tp")
    along = "tp"
    lacks: Mapping[str, str] = MappingProxyType(
        {
            "clip": CLIP,
            "tied": "a shared weight cannot be split twice",
            "residual": "the plan splits no convolution",
            "batchnorm": "running statistics of ranks with the same samples are not written yet",
            "dropout": "what ranks with the same samples drop is not judged yet",
            "branched": f"along the other axes {MISMATCH}",
        }
    )

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`."""
        check_split(plan.split, model, world.mesh.get("tp", 1))

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """By the plan, and sharded along the other axes."""
        self.divide(model)
        return self.sharded(model)

    def summed(self, loss: torch.Tensor) -> float:
        """Over the shares of those that have others."""
        for axis in ("dp", "fsdp"):
            dist.all_reduce(loss, group=self.mesh.get_group(axis))
        return float(loss)


class Pipeline(Divided):
    """`ScheduleGPipe`: each rank along `pp` has some of the model's children, as one stage.

    held     stages of a rank
    delayed  whether the gradients of weights are made later than those of inputs
    """

    name = "torch-pp"
    threads = False
    axes = ("dp", "fsdp", "tp", "pp")
    along = "pp"
    lacks: Mapping[str, str] = MappingProxyType(
        {
            "tied": "stages share no parameter",
            "uneven": "microbatches of a pipeline have one size",
            "batchnorm": "running statistics that each microbatch moves are not written yet",
            "dropout": "what stages drop is not judged yet",
        }
    )
    schedule: Any = ScheduleGPipe
    held = 1
    delayed = False

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`: stages have a child each, and microbatches one size."""
        dp, fsdp, tp, pp = (world.mesh.get(axis, 1) for axis in self.axes)
        stages = pp * self.held
        if stages > len(model):
            raise Unsupported(f"a model of {len(model)} children has no {stages} stages")
        parts = dp * fsdp * stages * plan.accumulate
        for n in samples:
            if n % parts:
                raise Unsupported(f"{n} samples are no {parts} microbatches of one size")
        if dp * fsdp > 1 and any(isinstance(child, Branched) for child in model):
            raise Unsupported(f"along dp and fsdp {MISMATCH}")
        if tp > 1 and plan.clip < inf:
            raise Unsupported(CLIP)
        if tp > 1 and self.delayed:
            raise Unsupported("its schedule fails beside tp: Can't detach views in-place")
        check_split(plan.split, model, tp)

    @property
    def stages(self) -> int:
        """Of the whole pipeline."""
        return self.world.mesh["pp"] * self.held

    def numbers(self, place: int) -> list[int]:
        """The stages of a rank at this place along `pp`: one of each round through the ranks."""
        return [turn * self.world.mesh["pp"] + place for turn in range(self.held)]

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """The stages of this rank."""
        self.plan = plan
        group, place = self.mesh.get_group("pp"), self.mesh.get_local_rank("pp")
        children, count = list(model.named_children()), self.stages
        cuts = [number * len(children) // count for number in range(count + 1)]
        parts = {
            n: nn.Sequential(OrderedDict(children[cuts[n] : cuts[n + 1]]))
            for n in self.numbers(place)
        }
        for part in parts.values():
            if self.world.mesh["tp"] > 1:
                self.divide(part)
            # else torch loses gradients in silence, see docs/found.md
            self.sharded(part, reshard_after_forward=not self.delayed)
        named = chain.from_iterable(part.named_children() for part in parts.values())
        self.model = nn.Sequential(OrderedDict(named))
        self.optimizer = optimizer(self.model.parameters())
        stages = [
            PipelineStage(part, n, count, torch.device("cpu"), group=group)
            for n, part in parts.items()
        ]
        self.pipeline = self.schedule(
            stages if self.held > 1 else stages[0], count * plan.accumulate, loss_fn=mean_loss
        )

    def step(self, joined: Minibatch) -> float:
        """The first stage has the inputs, the last one the classes and the losses."""
        mine, held = joined.part(*self.replicas), self.numbers(self.mesh.get_local_rank("pp"))
        losses: list[torch.Tensor] = []
        inputs = (mine.x,) if 0 in held else ()
        if self.stages - 1 in held:
            self.pipeline.step(*inputs, target=mine.y, losses=losses)
        else:
            self.pipeline.step(*inputs)
        if self.plan.clip < inf:
            self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        every = gathered(torch.stack(losses).mean().item() if losses else None, self.world.size)
        known: list[float] = [loss for loss in every if loss is not None]
        return sum(known) / len(known)

    def _clip(self) -> None:
        """By the norm of all stages' gradients."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        square = torch.stack([whole(g.square().sum()) for g in gradients]).sum()
        dist.all_reduce(square, group=self.mesh.get_group("pp"))
        norm = square.sqrt()
        clip_grads_with_norm_(self.model.parameters(), self.plan.clip, norm)
        self.norm = float(norm)

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Those of all stages of this pipeline."""
        mine = {name: whole(p.detach()) for name, p in self.named.items()}
        stages: list[Any] = [None] * self.world.mesh["pp"]
        dist.all_gather_object(stages, mine, group=self.mesh.get_group("pp"))
        return {name: p for stage in stages for name, p in stage.items()}


class OneForwardOneBackward(Pipeline):
    """`Schedule1F1B`."""

    name = "torch-pp-1f1b"
    schedule = Schedule1F1B


class Interleaved(Pipeline):
    """`ScheduleInterleaved1F1B`: two stages a rank."""

    name = "torch-pp-interleaved"
    schedule = ScheduleInterleaved1F1B
    held = 2


class LoopedBreadthFirst(Interleaved):
    """`ScheduleLoopedBFS`."""

    name = "torch-pp-bfs"
    schedule = ScheduleLoopedBFS


class ZeroBubble(Interleaved):
    """`ScheduleInterleavedZeroBubble`: the gradients of weights wait until a rank is idle."""

    name = "torch-pp-zero-bubble"
    delayed = True
    schedule = ScheduleInterleavedZeroBubble


class ZeroBubbleV(Interleaved):
    """`ScheduleZBVZeroBubble`: the first rank has the last stage, too."""

    name = "torch-pp-zbv"
    delayed = True
    schedule = ScheduleZBVZeroBubble

    def numbers(self, place: int) -> list[int]:
        """There and back."""
        return [place, self.stages - 1 - place]


class DualPipeV(ZeroBubbleV):
    """`ScheduleDualPipeV`."""

    name = "torch-pp-dualpipev"
    schedule = ScheduleDualPipeV
