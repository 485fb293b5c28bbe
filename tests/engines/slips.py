"""Engines with a slip of whoever wrote them: a name that there is not, something left out."""

from math import nan

from torch import nn

from d5test.backends.base import Unsupported
from d5test.engines.data_parallel import Ddp
from d5test.engines.engine import Engine, Held, Minibatch, Plan, Rule


class OtherAxis(Ddp):
    """Its axis is none of d5test's."""

    axes = ("data",)


class OtherFeature(Ddp):
    """It lacks what no case asks for."""

    lacks = {"accumulation": "not written yet"}  # noqa: RUF012 (as one writes it)


class NoStart(Engine):
    """Nothing is written yet."""

    threads = True


class Made(Ddp):
    """It wants to know something."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks


class NoLoss(Ddp):
    """Its step returns nothing."""

    def step(self, joined: Minibatch) -> float:  # type: ignore[return]
        super().step(joined)


class NoNorm(Ddp):
    """It does not say what the norm was."""

    def step(self, joined: Minibatch) -> float:
        loss = super().step(joined)
        self.norm = nan
        return loss


class OwnSplit(Ddp):
    """It has something of its own by a name that is read."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.split = ["first"]  # type: ignore[assignment]


class OfOneRank(Ddp):
    """After training, one rank alone finds that it cannot do this."""

    def placements(self) -> Held:
        if self.world.rank == 1:
            raise Unsupported("not of odd ranks")
        return super().placements()
