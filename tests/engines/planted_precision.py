"""Engines in bfloat16 that are wrong on purpose, and honest variants of ours.

`--engine=tests.engines.planted_precision:NAME`.
"""

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from d5test.engines.data_parallel import Bfloat16Fsdp2, Fsdp2
from d5test.engines.engine import Minibatch, Rule


class ReducedInBfloat16(Bfloat16Fsdp2):
    """Gradients are added up in bfloat16, where float32 is named."""

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, output_dtype=torch.float32
    )


class ComputedInFloat32(Bfloat16Fsdp2):
    """It says that it computes in bfloat16, and gathers and computes in float32."""

    policy = Fsdp2.policy


class NotNamed(Fsdp2):
    """It computes in bfloat16 and does not say so."""

    policy = Bfloat16Fsdp2.policy


class SteppedInBfloat16(Bfloat16Fsdp2):
    """The parameters that are stepped are in bfloat16, too."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        return super().distributed(model.bfloat16())


class Scaled(Bfloat16Fsdp2):
    """Gradients are multiplied right before the optimizer's step."""

    @property
    def factor(self) -> float:
        raise NotImplementedError

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)

        def scale(*_: Any) -> None:
            for p in self.model.parameters():
                p.grad *= self.factor

        made.register_step_pre_hook(scale)
        return made


class MeanOverTooFew(Scaled):
    @property
    def factor(self) -> float:
        return self.world.size / (self.world.size - 1)


class MeanOverTooMany(Scaled):
    @property
    def factor(self) -> float:
        return self.world.size / (self.world.size + 1)


class SamplesRepeated(Bfloat16Fsdp2):
    """The last rank has the samples of rank 0."""

    @property
    def replicas(self) -> tuple[int, int]:
        return self.world.rank % (self.world.size - 1), self.world.size


class ChildNotReduced(Bfloat16Fsdp2):
    """The gradients of a child stay on their ranks, and it is not stepped."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        made: Any = super().distributed(model)
        made.second.set_requires_gradient_sync(False, recurse=False)
        return made


class MomentumForgotten(Bfloat16Fsdp2):
    def step(self, joined: Minibatch) -> float:
        self.optimizer.state.clear()
        return super().step(joined)


class LearningRateDoubled(Bfloat16Fsdp2):
    def optimizing(self, optimizer: Rule) -> Any:
        options = {**optimizer.options, "lr": 2 * optimizer.options["lr"]}
        return super().optimizing(Rule(optimizer.kind, options))
