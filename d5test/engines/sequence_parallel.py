"""Tensor parallelism of PyTorch whose activations and losses are divided, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from types import MappingProxyType

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
)

from d5test.backends.base import Unsupported
from d5test.engines.engine import Minibatch, Plan, Rule, Side, World
from d5test.engines.model_parallel import TensorParallel

POSITIONS = Shard(1)
"""Each rank has some positions of all sequences, (n, length, width)."""
NO_SEQUENCE = "a sample of it is no sequence, whose positions could be divided"


class SequenceParallelism(TensorParallel):
    """Ranks along `tp` divide the positions of a sequence wherever they do not divide weights.

    As Megatron does (Korthikanti et al., MLSys 2023): norms and residual paths see a rank's own
    positions. These are gathered before a module that is split by columns, and the sums after one
    that is split by rows are scattered. The rank's share of a norm's gradient is summed by the
    optimizer's step.
    """

    name = "torch-tp-sequence"
    lacks = MappingProxyType(
        {**TensorParallel.lacks, **dict.fromkeys(("mlp", "experts"), NO_SEQUENCE)}
    )

    def styles(self, model: nn.Sequential) -> dict[str, ParallelStyle]:
        """All between the first child and the last one has some positions on each rank."""
        _, first, *_, last = (name for name, _ in model.named_children())
        split = self.plan.split
        norms = [name for name, each in model.named_modules() if isinstance(each, nn.LayerNorm)]
        gathered = {name.rpartition(".")[0] for name, by in split.items() if by == "columns"}
        return {
            **{name: ColwiseParallel() for name, by in split.items() if by == "columns"},
            **{
                name: RowwiseParallel(output_layouts=POSITIONS, use_local_output=False)
                for name, by in split.items()
                if by == "rows"
            },
            **{name: SequenceParallel() for name in norms},
            **{
                name: PrepareModuleInput(
                    input_layouts=POSITIONS, desired_input_layouts=Replicate()
                )
                for name in gathered
            },
            first: PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=POSITIONS),
            last: self.leaving(),
        }

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """See `Engine`."""
        self.width = next(m for m in model.modules() if isinstance(m, nn.LayerNorm)).weight.numel()
        super().wrap(model, optimizer, plan)

    def step(self, joined: Minibatch) -> float:
        """Of a replica's sequences, whose number and length its bytes depend on."""
        self.sequences = joined.part(*self.replicas).x.shape
        return super().step(joined)

    def gives(self, itemsize: int) -> int | None:
        """Positions to gathers, and sums of all positions to scatters.

        Forward, the last child and each pair of modules that are split gather; backward, the first
        child and each pair do. Each pair scatters forward and backward, a last child that is split
        backward. Shards are padded to the longest. No formula is known with `fully_shard`, nor
        where there are fewer positions than ranks: DTensor then gives less.
        """
        count, length = self.sequences
        if self.replicas[1] > 1 or length < self.world.size:
            return None
        pairs = sum(by == "rows" for by in self.plan.split.values())
        gathers, scatters = 2 * (pairs + 1), 2 * pairs + len(self.split)
        positions: int = count * ceil(length / self.world.size) * self.width
        return itemsize * positions * (gathers + self.world.size * scatters)

    def leaving(self) -> ParallelStyle:
        """That of the last child: each rank has all positions and all classes."""
        return PrepareModuleInput(
            input_layouts=POSITIONS, desired_input_layouts=Replicate(), use_local_output=True
        )


class LossParallelism(SequenceParallelism):
    """The last child is split by columns; each rank has the scores of some classes alone."""

    name = "torch-tp-loss"
    threads = False  # loss_parallel is in force for the whole process
    split: Mapping[str, Side] = MappingProxyType({"leave": "columns"})

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`. torch's loss_parallel fails on a rank that has no class."""
        super().check(world, model, plan, samples)
        classes, ranks = model.get_submodule("leave").weight.shape[0], world.mesh.get("tp", 1)
        if ceil(classes / ranks) * (ranks - 1) >= classes:
            raise Unsupported(f"torch's loss_parallel: {classes} classes leave a rank none")

    def leaving(self) -> ParallelStyle:
        """Scores stay where they are."""
        return ColwiseParallel(
            input_layouts=POSITIONS, output_layouts=Shard(-1), use_local_output=False
        )

    def step(self, joined: Minibatch) -> float:
        """With a cross-entropy that gathers no scores."""
        with loss_parallel():
            return super().step(joined)
