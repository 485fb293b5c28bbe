"""Engines with a slip of whoever wrote them: a name that there is not, something left out."""

from math import nan

from d5test.engines.data_parallel import Ddp
from d5test.engines.engine import Engine, Minibatch


class OtherAxis(Ddp):
    """Its axis is none of d5test's."""

    axes = ("data",)


class OtherFeature(Ddp):
    """It lacks what no case asks for."""

    lacks = {"accumulation": "not written yet"}  # noqa: RUF012 (as one writes it)


class NoStart(Engine):
    """Nothing is written yet."""

    threads = True


class NoNorm(Ddp):
    """It does not say what the norm was."""

    def step(self, joined: Minibatch) -> float:
        loss = super().step(joined)
        self.norm = nan
        return loss
