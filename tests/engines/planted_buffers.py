"""Engines whose running statistics are wrong on purpose, and honest variants of ours.

`--engine=tests.engines.planted_buffers:NAME`.
"""

from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from d5test.engines.data_parallel import Ddp, Fsdp2
from d5test.engines.engine import Minibatch
from tests.engines.planted import Recomputed as Recomputed  # its statistics are moved twice

Before = dict[str, torch.Tensor]
NOT_BROADCAST = MappingProxyType({"broadcast_buffers": False})


def normalisations(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


class Hooked(Ddp):
    """Something happens to the buffers after a module has moved them, past autograd's eyes."""

    def after(self, module: Any, samples: int, before: Before) -> None:
        raise NotImplementedError

    def distributed(self, model: nn.Sequential) -> nn.Module:
        for module in normalisations(model):
            held: list[Before] = []

            def begin(module: Any, inputs: Any, held: list[Before] = held) -> None:
                held[:] = [{name: b.clone() for name, b in module.named_buffers()}]

            def end(module: Any, inputs: Any, output: Any, held: list[Before] = held) -> None:
                self.after(module, len(inputs[0]), held[0])

            module.register_forward_pre_hook(begin)
            module.register_forward_hook(end)
        return super().distributed(model)


class NotMoved(Hooked):
    def after(self, module: Any, samples: int, before: Before) -> None:
        for name, b in module.named_buffers():
            b.data.copy_(before[name])


class NotCounted(Hooked):
    """All is right but the number of minibatches."""

    def after(self, module: Any, samples: int, before: Before) -> None:
        module.num_batches_tracked.data.copy_(before["num_batches_tracked"])


class MovedTwice(Hooked):
    """The running mean alone is moved by the mean of the minibatch once more."""

    def after(self, module: Any, samples: int, before: Before) -> None:
        mean = before["running_mean"] + (
            (module.running_mean - before["running_mean"]) / module.momentum
        )
        module.running_mean.data.lerp_(mean, module.momentum)


class Biased(Hooked):
    """The running variance takes in the mean square of the deviations."""

    def after(self, module: Any, samples: int, before: Before) -> None:
        last = before["running_var"]
        variance = last + (module.running_var - last) / module.momentum
        variance *= (samples - 1) / samples
        module.running_var.data.copy_(last.lerp(variance, module.momentum))


class NotBroadcast(Ddp):
    """Each rank goes on from its own statistics."""

    options = NOT_BROADCAST


class FromLastRank(Ddp):
    """The last rank's statistics are broadcast, not those of rank 0."""

    options = NOT_BROADCAST

    def step(self, joined: Minibatch) -> float:
        for b in self.buffers().values():
            dist.broadcast(b, src=self.world.size - 1)
        return super().step(joined)


class MeanOfStatistics(Ddp):
    """After a step each rank has the mean of all ranks' statistics."""

    options = NOT_BROADCAST

    def step(self, joined: Minibatch) -> float:
        loss = super().step(joined)
        for b in self.buffers().values():
            if b.is_floating_point():
                dist.all_reduce(b)
                b /= self.world.size
        return loss


class Sum(torch.autograd.Function):
    """Over all ranks, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 (torch gives it)
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:  # noqa: ARG004
        total = dy.contiguous()
        dist.all_reduce(total)
        return total


class ForwardSum(Sum):
    """Backward, a rank's own part of the gradient is taken for all of it."""

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:  # noqa: ARG004
        return dy


class AllSamples(nn.BatchNorm1d):
    """It normalises by the samples of all ranks, as `SyncBatchNorm` does."""

    total: Any = Sum

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.total.apply
        count = total(torch.tensor(float(len(x)), dtype=x.dtype))
        mean = total(x.sum(0)) / count
        variance = total((x - mean).square().sum(0)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
            self.num_batches_tracked += 1
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class AllSamplesForward(AllSamples):
    total = ForwardSum


class Joined(Ddp):
    """It says that a rank normalises by its share, and all samples are joined."""

    options = NOT_BROADCAST
    kind = AllSamples

    def distributed(self, model: nn.Sequential) -> nn.Module:
        for module in normalisations(model):
            module.__class__ = self.kind
        return super().distributed(model)

    def gives(self, itemsize: int) -> Any:
        """Sums over all samples, too: no formula is written here."""


class JoinedForward(Joined):
    """All samples are joined in the forward pass, and not in the backward pass."""

    statistics = "joined"
    kind = AllSamplesForward


class NotJoined(Ddp):
    """It says that all samples are joined, and a rank normalises by its share."""

    statistics = "joined"


class BroadcastFsdp2(Fsdp2):
    """It says that each rank has its own statistics, and goes on from rank 0's."""

    def step(self, joined: Minibatch) -> float:
        for b in self.buffers().values():
            dist.broadcast(b, src=0)
        return super().step(joined)


class NamedJoined(Joined):
    """Honest: it says so."""

    statistics = "joined"


class NamedOwn(NotBroadcast):
    """Honest: it says that each rank has its own."""

    statistics = "own"


class BufferMissing(Ddp):
    def buffers(self) -> dict[str, torch.Tensor]:
        return {n: b for n, b in super().buffers().items() if not n.endswith("tracked")}
