"""Engines of sequence and loss parallelism that are wrong on purpose, each in one thing.

`--engine=tests.engines.planted_sequences:NAME`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle

from d5test.engines.engine import Rule, Side
from d5test.engines.model_parallel import TensorParallel
from d5test.engines.sequence_parallel import POSITIONS, LossParallelism, SequenceParallelism


class ActivationsEverywhere(SequenceParallelism):
    """Each rank has all positions between the blocks: all is right but what travels."""

    def styles(self, model: nn.Sequential) -> dict[str, ParallelStyle]:
        return TensorParallel.styles(self, model)


class OneNormWhole(SequenceParallelism):
    """The positions are gathered before the first norm, and divided after it."""

    def styles(self, model: nn.Sequential) -> dict[str, ParallelStyle]:
        def gathered(module: nn.Module, inputs: Any) -> Any:
            return (inputs[0].redistribute(placements=[Replicate()]),)

        made = super().styles(model)
        model.get_submodule("second.before").register_forward_pre_hook(gathered)
        return made


class OwnNorms(SequenceParallelism):
    """The gradient of a norm is that of the rank's own positions."""

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)
        made.register_step_pre_hook(lambda *_: self.keep())
        return made

    def keep(self) -> None:
        for name, p in self.named.items():
            if name.endswith(("before.weight", "before.bias")):
                assert isinstance(p.grad, DTensor)
                own = p.grad.to_local()
                p.grad = DTensor.from_local(own, self.mesh["tp"], [Replicate()], run_check=False)


class OwnSum(torch.autograd.Function):
    """Gathers positions; backward, each rank keeps its positions of its own part of the sum."""

    @staticmethod
    def forward(ctx: Any, x: DTensor) -> DTensor:
        ctx.mesh = x.device_mesh
        return x.redistribute(placements=[Replicate()])

    @staticmethod
    def backward(ctx: Any, dy: DTensor) -> DTensor:
        own = DTensor.from_local(dy.to_local(), ctx.mesh, [Replicate()], run_check=False)
        return own.redistribute(placements=[POSITIONS])


class NotSummedInBackward(SequenceParallelism):
    def styles(self, model: nn.Sequential) -> dict[str, ParallelStyle]:
        made = super().styles(model)
        del made["second.pair"]
        model.get_submodule("second.pair").register_forward_pre_hook(
            lambda _, inputs: (OwnSum.apply(inputs[0]),)
        )
        return made


class LeaveNotSplit(SequenceParallelism):
    """It says that it splits the last child, and does not."""

    split: Mapping[str, Side] = MappingProxyType({"leave": "columns"})


class ScoresGathered(LossParallelism):
    """Each rank has the scores of all classes for its loss: all is right but what travels."""

    def leaving(self) -> ParallelStyle:
        return ColwiseParallel(input_layouts=POSITIONS, output_layouts=Replicate())
