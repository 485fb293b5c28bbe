"""Engines whose checkpoints are wrong on purpose, each in one thing, and honest ones of others.

`--engine=tests.engines.planted_checkpoints:NAME`.
"""

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import DTensor

from d5test.engines.data_parallel import Ddp, Fsdp2, TorchEngine, Zero
from d5test.engines.engine import Minibatch, World
from d5test.engines.model_parallel import Pipeline, TensorParallel
from tests.engines.planted import ByHand


def local(value: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return value.to_local() if isinstance(value, DTensor) else value


def written(engine: TorchEngine, folder: Path) -> None:
    """A file a rank, with what it holds: by parameter, the slots of the optimizer."""
    torch.save(
        {name: {s: local(v) for s, v in engine.optimizer.state[p].items()}
         for name, p in engine.named.items()},
        folder / f"rank{engine.world.rank}.pt",
    )  # fmt: skip


class NothingLoaded(Ddp):
    def load(self, folder: Path) -> None:
        pass


class ModelAlone(Fsdp2):
    """The optimizer begins anew."""

    def load(self, folder: Path) -> None:
        state = get_model_state_dict(self.model)
        dcp.load({"model": state}, checkpoint_id=folder)
        set_model_state_dict(self.model, state)


class OptimizerAlone(Ddp):
    """The parameters begin anew."""

    def load(self, folder: Path) -> None:
        before = {name: p.detach().clone() for name, p in self.named.items()}
        super().load(folder)
        with torch.no_grad():
            for name, p in self.named.items():
                p.copy_(before[name])


class OneSlotLost(Fsdp2):
    """One slot of one parameter is what a fresh optimizer has."""

    slot = ""

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.optimizer.state[self.named["second.down.bias"]][self.slot].zero_()


class OneMomentumLost(OneSlotLost):
    slot = "momentum_buffer"


class OneSecondMomentLost(OneSlotLost):
    slot = "exp_avg_sq"


class OneParameterLost(TensorParallel):
    """It is not among what is asked for."""

    def load(self, folder: Path) -> None:
        before = local(self.named["first.up.weight"]).detach().clone()
        super().load(folder)
        with torch.no_grad():
            local(self.named["first.up.weight"]).copy_(before)


class Transposed(Ddp):
    """A square weight is read with its rows as columns."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        weight = self.named["first.up.weight"]
        with torch.no_grad():
            weight.copy_(weight.t().clone())


class StepsLost(Ddp):
    """AdamW corrects the bias of its moments as in the first step."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        for state in self.optimizer.state.values():
            state["step"].zero_()


class NeighboursShard(Fsdp2):
    """Each rank reads the momentum of a parameter from the file of the next rank."""

    def save(self, folder: Path) -> None:
        super().save(folder)
        written(self, folder)

    def load(self, folder: Path) -> None:
        super().load(folder)
        other = torch.load(folder / f"rank{(self.world.rank + 1) % self.world.size}.pt")
        mine = self.optimizer.state[self.named["first.up.weight"]]["momentum_buffer"]
        local(mine).copy_(other["first.up.weight"]["momentum_buffer"])


class StepOld(Ddp):
    """What is written is of before the last step."""

    def step(self, joined: Minibatch) -> float:
        # momentum is there from the first step on
        self.before = [
            (tensor, tensor.detach().clone())
            for p in self.model.parameters()
            for tensor in (p, *self.optimizer.state.get(p, {}).values())
        ]
        return super().step(joined)

    def save(self, folder: Path) -> None:
        with torch.no_grad():
            for tensor, before in self.before:
                tensor.copy_(before)
        super().save(folder)


class SavedInBfloat16(Ddp):
    """Moments are written in half of the bytes."""

    def save(self, folder: Path) -> None:
        for state in self.optimizer.state.values():
            for value in state.values():
                value.copy_(value.bfloat16())
        super().save(folder)


class OwnState(Zero):
    """Rank 0 writes the state of its own part as if it were all: the others' begins anew."""

    def save(self, folder: Path) -> None:
        if not self.world.rank:
            state = {"model": self.model.state_dict(), "optimizer": self.zero.optim.state_dict()}
            torch.save(state, folder / "state.pt")

    def load(self, folder: Path) -> None:
        state = torch.load(folder / "state.pt")
        self.model.load_state_dict(state["model"])
        if not self.world.rank:
            self.zero.optim.load_state_dict(state["optimizer"])


class FirstStageAlone(Pipeline):
    """The other stages' moments begin anew."""

    def load(self, folder: Path) -> None:
        super().load(folder)
        if self.world.rank:
            self.optimizer.state.clear()


class ShardedAgain(Fsdp2):
    """It goes on right, and on the mesh that it was on before."""

    def start(self, world: World) -> None:
        super().start(replace(world, mesh={"fsdp": world.size}))


class FileByHand(ByHand):
    """Honest: rank 0 writes a file of PyTorch."""

    def save(self, folder: Path) -> None:
        if dist.get_rank() == 0:
            torch.save((self.model.state_dict(), self.optimizer.state_dict()), folder / "all.pt")

    def load(self, folder: Path) -> None:
        model, optimizer = torch.load(folder / "all.pt")
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
