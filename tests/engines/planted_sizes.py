"""Engines that are wrong where sizes, options or meshes are not those of `CASES`."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from d5test.backends.base import Unsupported
from d5test.engines.data_parallel import Fsdp2
from d5test.engines.engine import Minibatch, Plan, Rule
from tests.engines.planted import Hooked


class LostWhereRowsAreFew(Hooked):
    """A parameter of two rows has no gradient: two of four ranks would have an empty shard."""

    def before(self, parameters: list[torch.Tensor]) -> None:
        for p in parameters:
            if len(p) == 2:
                p.grad.zero_()


class FirstSampleAlone(Hooked):
    """Where each rank has a single sample, that of rank 0 counts alone."""

    single = False

    def step(self, joined: Minibatch) -> float:
        self.single = len(joined) == self.world.size
        return super().step(joined)

    def before(self, parameters: list[torch.Tensor]) -> None:
        if self.single:
            for p in parameters:
                dist.broadcast(p.grad, 0)


class DecayForgotten(Hooked):
    """AdamW's weight decay is a constant."""

    def optimizing(self, optimizer: Rule) -> Any:
        options = dict(optimizer.options)
        if optimizer.kind is torch.optim.AdamW:
            options["weight_decay"] = 2.0**-7
        return super().optimizing(Rule(optimizer.kind, options))

    def before(self, parameters: list[torch.Tensor]) -> None:
        pass


class SumAlongTwoAxes(Fsdp2):
    """Along the first of two axes gradients of two ranks are added up, and not averaged."""

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)

        def added(*_: Any) -> None:
            if self.world.mesh.get("dp", 1) > 1 and self.world.mesh.get("fsdp", 1) > 1:
                for p in self.model.parameters():
                    local = p.grad.to_local()
                    local *= 2

        made.register_step_pre_hook(added)
        return made


class RefusesLate(Fsdp2):
    """It says what it cannot do after all ranks have met, not by `check`."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        raise Unsupported("none of these models")
