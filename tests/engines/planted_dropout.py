"""Engines whose dropout is wrong on purpose, each in one thing.

`--engine=tests.engines.planted_dropout:NAME`.
"""

from typing import Any

import torch
from torch import nn

from d5test.engines.data_parallel import Ddp, Fsdp2
from d5test.engines.engine import Minibatch, Plan, Rule, World
from tests.engines.planted import Hooked


class SameSeed(Fsdp2):
    """Each rank begins with the same seed."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        torch.manual_seed(7)


class SeededInEachStep(Ddp):
    """Each rank has a seed of its own, with which each step begins."""

    def step(self, joined: Minibatch) -> float:
        torch.manual_seed(self.world.rank)
        return super().step(joined)


class SeededInEachPart(Ddp):
    """Each part of a share begins with what the rank's generator was when the step began."""

    def step(self, joined: Minibatch) -> float:
        state = torch.get_rng_state()
        hook = self.model.register_forward_pre_hook(lambda *_: torch.set_rng_state(state))
        loss = super().step(joined)
        hook.remove()
        torch.rand(1)
        return loss


class SeededByRankAndStep(Ddp):
    """The seeds of a rank and of a step are added, so that the next rank's are those of the next
    step."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.steps = 0

    def step(self, joined: Minibatch) -> float:
        self.steps += 1
        torch.manual_seed(self.world.rank + self.steps)
        return super().step(joined)


class SeededAtTheStart(Ddp):
    """Two neighbours have one seed."""

    def start(self, world: World) -> None:
        super().start(world)
        torch.manual_seed(world.rank // 2)


class Switched(Ddp):
    """Modules are told to evaluate, not to train: nothing is dropped."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        return super().distributed(model.eval())


class Unscaled(Ddp):
    """What is left is not scaled."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        def unscaled(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            return output * (1 - module.p)

        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.register_forward_hook(unscaled)
        super().wrap(model, optimizer, plan)


class OtherRate(Ddp):
    """More is dropped than is asked for, and scaled as it is."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.5
        return super().distributed(model)


class OtherRateByHand(Ddp):
    """Half of the numbers are dropped, and what is left is scaled as if a fourth were."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        def more(module: nn.Module, inputs: tuple[torch.Tensor], output: Any) -> torch.Tensor:
            (x,) = inputs
            return x * (torch.rand_like(x) < 0.5) / (1 - module.p)

        for module in model.modules():
            if isinstance(module, nn.Dropout):
                hooks = module._forward_hooks.copy()
                module._forward_hooks.clear()
                module.register_forward_hook(more)
                module._forward_hooks.update(hooks)  # what counts comes behind
        super().wrap(model, optimizer, plan)


class SumForMean(Hooked):
    """Beside what it drops it adds up gradients."""

    def before(self, parameters: list[torch.Tensor]) -> None:
        for p in parameters:
            p.grad *= self.world.size
