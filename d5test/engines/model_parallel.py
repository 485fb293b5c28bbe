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
from d5test.engines.data_parallel import MISMATCH, DataParallel, TorchEngine, sharded
from d5test.engines.engine import (
    Minibatch,
    Plan,
    Rule,
    World,
    mean_loss,
)
from d5test.engines.models import check_split

STYLES = {"columns": ColwiseParallel, "rows": RowwiseParallel}


class TensorParallel(DataParallel):
    """`parallelize_module`: ranks along `tp` have the same samples, and parts of the weights.

    Along the other axes it is FSDP2's `fully_shard`.
    """

    name = "torch-tp"
    axes = ("dp", "fsdp", "tp")
    lacks: Mapping[str, str] = MappingProxyType(
        {
            "clip": "torch's clip_grad_norm_ refuses DTensors beside tensors (its issue 180346)",
            "tied": "a shared weight cannot be split twice",
            "residual": "the plan splits no convolution",
            "batchnorm": "running statistics of ranks with the same samples are not written yet",
            "branched": f"along the other axes {MISMATCH}",
        }
    )

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`."""
        check_split(plan.split, model, world.mesh.get("tp", 1))

    def start(self, world: World) -> None:
        """With all axes, if only of one rank: `fully_shard` replicates along the first of two."""
        super().start(replace(world, mesh={axis: world.mesh.get(axis, 1) for axis in self.axes}))

    @property
    def replicas(self) -> tuple[int, int]:
        """Ranks along `tp` are one."""
        size = self.world.mesh["tp"]
        return self.world.rank // size, self.world.size // size

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """By the plan, and sharded along the other axes."""
        parallelize_module(model, self.mesh["tp"], self.styles(model))
        return sharded(model, self.mesh["dp", "fsdp"]) if self.replicas[1] > 1 else model

    def styles(self, model: nn.Sequential) -> dict[str, ParallelStyle]:
        """What becomes of modules, by name."""
        return {name: STYLES[by]() for name, by in self.plan.split.items()}

    def summed(self, loss: torch.Tensor) -> float:
        """Over the shares of those that have others."""
        for axis in ("dp", "fsdp"):
            dist.all_reduce(loss, group=self.mesh.get_group(axis))
        return float(loss)


class Pipeline(TorchEngine):
    """`ScheduleGPipe`: each rank has some of the model's children, as one stage.

    held  stages of a rank
    """

    name = "torch-pp"
    threads = False
    axes = ("pp",)
    lacks: Mapping[str, str] = MappingProxyType(
        {
            "tied": "stages share no parameter",
            "uneven": "microbatches of a pipeline have one size",
            "batchnorm": "running statistics that each microbatch moves are not written yet",
        }
    )
    schedule: Any = ScheduleGPipe
    held = 1

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`: stages have a child each, and microbatches one size."""
        stages = world.size * self.held
        if stages > len(model):
            raise Unsupported(f"a model of {len(model)} children has no {stages} stages")
        parts = stages * plan.accumulate
        for n in samples:
            if n % parts:
                raise Unsupported(f"{n} samples are no {parts} microbatches of one size")

    def numbers(self, rank: int) -> list[int]:
        """The stages of a rank: one of each round through the ranks."""
        return [turn * self.world.size + rank for turn in range(self.held)]

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """The stages of this rank."""
        children, count = list(model.named_children()), self.world.size * self.held
        cuts = [number * len(children) // count for number in range(count + 1)]
        mine = {n: children[cuts[n] : cuts[n + 1]] for n in self.numbers(self.world.rank)}
        self.plan = plan
        self.model = nn.Sequential(OrderedDict(chain.from_iterable(mine.values())))
        self.optimizer = optimizer(self.model.parameters())
        stages = [
            PipelineStage(nn.Sequential(OrderedDict(part)), n, count, torch.device("cpu"))
            for n, part in mine.items()
        ]
        self.pipeline = self.schedule(
            stages if self.held > 1 else stages[0], count * plan.accumulate, loss_fn=mean_loss
        )

    def step(self, joined: Minibatch) -> float:
        """The first stage has the inputs, the last one the classes and the losses."""
        end = self.world.size * self.held - 1
        last = next(rank for rank in range(self.world.size) if end in self.numbers(rank))
        losses: list[torch.Tensor] = []
        inputs = (joined.x,) if self.world.rank == 0 else ()
        if self.world.rank == last:
            self.pipeline.step(*inputs, target=joined.y, losses=losses)
        else:
            self.pipeline.step(*inputs)
        if self.plan.clip < inf:
            self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss: list[float | None] = [torch.stack(losses).mean().item() if losses else None]
        dist.broadcast_object_list(loss, src=last)
        assert loss[0] is not None
        return loss[0]

    def _clip(self) -> None:
        """By the norm of all stages' gradients."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        square = torch.stack([g.square().sum() for g in gradients]).sum()
        dist.all_reduce(square)
        norm = square.sqrt()
        clip_grads_with_norm_(self.model.parameters(), self.plan.clip, norm)
        self.norm = float(norm)

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Those of all stages."""
        stages: list[Any] = [None] * self.world.size
        dist.all_gather_object(stages, {name: p.detach() for name, p in self.named.items()})
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
    schedule = ScheduleInterleavedZeroBubble


class ZeroBubbleV(Interleaved):
    """`ScheduleZBVZeroBubble`: the first rank has the last stage, too."""

    name = "torch-pp-zbv"
    schedule = ScheduleZBVZeroBubble

    def numbers(self, rank: int) -> list[int]:
        """There and back."""
        return [rank, 2 * self.world.size - 1 - rank]


class DualPipeV(ZeroBubbleV):
    """`ScheduleDualPipeV`."""

    name = "torch-pp-dualpipev"
    schedule = ScheduleDualPipeV
