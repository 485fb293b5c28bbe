"""DeepSpeed, wrong on purpose in one thing each.

`--engine=tests.engines.planted_deepspeed:NAME`.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from d5test.engines.deepspeed_parallel import TAG, DeepSpeed, StageOne, StageThree, StageTwo
from d5test.engines.engine import Held, Plan, Rule


class NotDivided(StageOne):
    """It says stage 1, and is configured as stage 0: each rank has all of the state."""

    def config(self, plan: Plan) -> dict[str, Any]:
        return {**super().config(plan), "zero_optimization": {"stage": 0}}

    def placements(self) -> Held:
        return DeepSpeed.placements(self)


class AllKept(StageThree):
    """Small parameters are kept whole, as DeepSpeed does where nothing is said of them."""

    def config(self, plan: Plan) -> dict[str, Any]:
        return {**super().config(plan), "zero_optimization": {"stage": 3}}

    def placements(self) -> Held:
        held = super().placements().state
        whole = {n: p.ds_numel if p.ds_persist else held[n] for n, p in self.named.items()}
        return Held(whole, held)


class PartsNotCounted(StageTwo):
    """It takes one part for a whole share: a step is made after each."""

    def config(self, plan: Plan) -> dict[str, Any]:
        return {**super().config(plan), "gradient_accumulation_steps": 1}


class NotClipped(StageTwo):
    def config(self, plan: Plan) -> dict[str, Any]:
        return {**super().config(plan), "gradient_clipping": 0.0}


class SumOverRanks(DeepSpeed):
    """Gradients are added up, and no mean is taken."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.optimizer.register_step_pre_hook(lambda *_: self.added())

    def added(self) -> None:
        for p in self.model.parameters():
            assert p.grad is not None
            p.grad *= self.world.size


class MomentumForgotten(StageOne):
    """A checkpoint is read without the optimizer's state."""

    def load(self, folder: Path) -> None:
        self.engine.load_checkpoint(str(folder), tag=TAG, load_optimizer_states=False)


class RowOff(StageThree):
    """A gathered weight is a row off."""

    def parameters(self) -> dict[str, torch.Tensor]:
        found = dict(super().parameters())
        found["first.up.weight"] = found["first.up.weight"].roll(1, 0)
        return found
