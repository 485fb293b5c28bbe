"""Engines that are wrong where some ranks do not use a parameter.

`--engine=tests.engines.planted_unused:NAME`.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from d5test.engines.data_parallel import SearchingDdp
from d5test.engines.engine import Minibatch, Plan, Rule


class Branching(SearchingDdp):
    """Something happens to the gradients of a module that not all ranks use, before the step."""

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)
        made.register_step_pre_hook(lambda *_: self.before(self.model.module.enter.some))
        return made

    def step(self, joined: Minibatch) -> float:
        parts = [joined.part(rank, self.world.size) for rank in range(self.world.size)]
        self.uses = [bool((part.x[:, 0] > 0).any()) for part in parts]
        return super().step(joined)

    def before(self, some: nn.Module) -> None:
        raise NotImplementedError


class MeanOverUsers(Branching):
    """The mean is that of the ranks that use a parameter."""

    def before(self, some: nn.Module) -> None:
        for p in some.parameters():
            if p.grad is not None:
                p.grad *= self.world.size / sum(self.uses)


class ZeroForUnused(Branching):
    """What no rank uses has a gradient of zero: momentum moves it."""

    def before(self, some: nn.Module) -> None:
        for p in some.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad


class NoneForUnused(Branching):
    """A rank does not step what it does not use itself."""

    def before(self, some: nn.Module) -> None:
        for p in some.parameters():
            p.grad = p.grad if self.uses[self.world.rank] else None


class GradientKept(Branching):
    """Gradients are not cleared where no rank has a new one: the last one is taken again."""

    def before(self, some: nn.Module) -> None:
        for p in some.parameters():
            p.grad = self.last.get(p) if p.grad is None else p.grad
            if p.grad is not None:
                self.last[p] = p.grad.clone()

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        self.last: dict[torch.Tensor, torch.Tensor] = {}
        super().wrap(model, optimizer, plan)


class SlotsShifted(SearchingDdp):
    """A checkpoint has a list of the slots that there are, which are read in order."""

    def save(self, folder: Path) -> None:
        states = self.optimizer.state
        named = self.model.module.named_parameters()
        weights = {name: p.detach().clone() for name, p in named}
        slots = [dict(states[p]) for p in self.model.parameters() if p in states]
        torch.save((weights, slots), folder / f"{self.world.rank}")

    def load(self, folder: Path) -> None:
        weights, slots = torch.load(folder / f"{self.world.rank}")
        self.model.module.load_state_dict(weights)
        for p, of_one in zip(self.model.parameters(), slots, strict=False):
            if p.shape == of_one["exp_avg"].shape:
                self.optimizer.state[p] = of_one


class CountsAStep(SearchingDdp):
    """What no rank used has made a step, when it is read: torch's own, by `get_state_dict`."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        for slots in self.optimizer.state.values():
            slots["step"].clamp_(min=1)


class Decays(SearchingDdp):
    """What no rank used has a momentum, when it is read: torch's own, by `get_state_dict`."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        (group,) = self.optimizer.param_groups
        for p, slots in self.optimizer.state.items():
            if not slots["momentum_buffer"].any():
                slots["momentum_buffer"] += group["weight_decay"] * p.detach()
