"""Engines that are wrong on purpose, each in one thing, and honest variants of ours.

`--engine=tests.engines.planted:NAME`.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, ScheduleZBVZeroBubble
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from d5test.engines.data_parallel import Ddp, Fsdp2, PostLocalSgd, Zero, whole
from d5test.engines.engine import Engine, Held, Minibatch, Plan, Rule, World, mean_loss
from d5test.engines.model_parallel import (
    Pipeline,
    TensorParallel,
    ZeroBubble,
    ZeroBubbleV,
)


class Hooked(Ddp):
    """Something happens to the gradients right before the optimizer's step."""

    def before(self, parameters: list[torch.Tensor]) -> None:
        raise NotImplementedError

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)
        made.register_step_pre_hook(lambda *_: self.before(list(self.model.parameters())))
        return made


class MeanOverTooFew(Hooked):
    def before(self, parameters: list[torch.Tensor]) -> None:
        for p in parameters:
            assert p.grad is not None
            p.grad *= self.world.size / (self.world.size - 1)


class MeanOverTooMany(Hooked):
    def before(self, parameters: list[torch.Tensor]) -> None:
        for p in parameters:
            assert p.grad is not None
            p.grad *= self.world.size / (self.world.size + 1)


class LastBucketLost(Ddp):
    def distributed(self, model: nn.Sequential) -> nn.Module:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["leave.bias"])
        return super().distributed(model)


class OwnExpert(Ddp):
    """One of the experts takes no part in the allreduce, as where each rank is to have its own."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        own = [name for name, _ in model.named_parameters() if name.startswith("second.expert.1.")]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, own)
        return super().distributed(model)


class PastDdp(Ddp):
    """The module within is called, so that nothing is reduced."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        class Past(DistributedDataParallel):
            def forward(self, *inputs: Any) -> Any:
                return self.module(*inputs)

        return Past(model)


class NoSyncToTheLast(Ddp):
    def step(self, joined: Minibatch) -> float:
        with self.model.no_sync():
            return super().step(joined)


class ThirdPartLost(Ddp):
    """Of three parts of a rank's share the last is stepped twice, and the second never."""

    def step(self, joined: Minibatch) -> float:
        if self.plan.accumulate > 2:
            rank, ranks = self.replicas
            part, count = joined.part(rank, ranks), self.plan.accumulate
            lost, taken = part.part(1, count), part.part(2, count)
            if len(lost) == len(taken):
                lost.x.copy_(taken.x)
                lost.y.copy_(taken.y)
        return super().step(joined)


class DecayedTwice(Hooked):
    """A shared weight is decayed by each module that has it."""

    def before(self, parameters: list[torch.Tensor]) -> None:
        shared = self.model.module.first.up.weight
        (group,) = self.optimizer.param_groups
        shared.grad.add_(shared.detach(), alpha=group["weight_decay"])


class CountedTwice(Hooked):
    """A shared weight is twice in the norm by which gradients are clipped."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, replace(plan, clip=inf))
        self.most = plan.clip

    def before(self, parameters: list[torch.Tensor]) -> None:
        shared = self.model.module.first.up.weight
        gradients = [p.grad for p in (*parameters, shared)]
        norm = torch.stack([(g * g).sum() for g in gradients]).sum().sqrt()
        self.norm = float(norm)
        for p in parameters:
            p.grad *= (self.most / norm).clamp(max=1.0)


class ClippedByOwnNorm(Hooked):
    """Each rank clips its own gradient, before the mean is taken."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, replace(plan, clip=inf))
        self.most = plan.clip

    def step(self, joined: Minibatch) -> float:
        with self.model.no_sync():
            return super().step(joined)

    def before(self, parameters: list[torch.Tensor]) -> None:
        self.norm = float(clip_grad_norm_(parameters, self.most))
        for p in parameters:
            assert p.grad is not None
            dist.all_reduce(p.grad)
            p.grad /= self.world.size


class NotClipped(Ddp):
    """It tells the norm, and leaves the gradient as long as it is."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, replace(plan, clip=2.0**20))


class NormAfterClipping(Ddp):
    """The steps are right; the norm that it tells is not."""

    def step(self, joined: Minibatch) -> float:
        loss = super().step(joined)
        self.norm = min(self.norm, self.plan.clip)
        return loss


class ReducedInBfloat16(Ddp):
    """Gradients are summed in bfloat16."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        module = super().distributed(model)
        size = self.world.size

        def hook(state: Any, bucket: Any) -> Any:
            whole = bucket.buffer()
            future = dist.all_reduce(whole.bfloat16(), async_op=True).get_future()
            return future.then(lambda done: done.value()[0].to(whole.dtype) / size)

        hook.__annotations__ = {
            "bucket": dist.GradBucket,
            "return": torch.futures.Future[torch.Tensor],
        }
        module.register_comm_hook(None, hook)
        return module


class SamplesRepeated(Ddp):
    """The last rank has the samples of rank 0."""

    @property
    def replicas(self) -> tuple[int, int]:
        return self.world.rank % (self.world.size - 1), self.world.size


class WholeBatch(Ddp):
    """Each rank trains on all samples: the mean over ranks is right."""

    @property
    def replicas(self) -> tuple[int, int]:
        return 0, 1

    def summed(self, loss: torch.Tensor) -> float:
        return super().summed(loss) / self.world.size


class ReducedTwice(Hooked):
    """The mean of the means: all is right, and twice as much travels."""

    def before(self, parameters: list[torch.Tensor]) -> None:
        for p in parameters:
            assert p.grad is not None
            dist.all_reduce(p.grad)
            p.grad /= self.world.size


class GatheredTwice(Fsdp2):
    """Each weight is gathered once more than it has to be."""

    def step(self, joined: Minibatch) -> float:
        for p in self.model.parameters():
            whole(p.detach())
        return super().step(joined)


class NotCompressed(Ddp):
    """It says that gradients travel in float16, and they do not."""

    rounding = "float16"


class MeanOfMeans(Ddp):
    """Each rank's mean counts alike, whatever its number of samples."""

    def step(self, joined: Minibatch) -> float:
        part = joined.part(*self.replicas)
        loss = mean_loss(self.model(part.x), part.y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.summed(loss.detach() / self.world.size)


class OwnLoss(Ddp):
    """It tells the loss of the rank's own samples."""

    def summed(self, loss: torch.Tensor) -> float:
        return float(loss) * self.world.size


class NotANumber(Ddp):
    """Its losses are NaN, and its parameters right."""

    def step(self, joined: Minibatch) -> float:
        super().step(joined)
        return float("nan")


class MomentumForgotten(Ddp):
    def step(self, joined: Minibatch) -> float:
        self.optimizer.state.clear()
        return super().step(joined)


class OtherRate(Ddp):
    """The learning rate is off by a part in 10,000."""

    def optimizing(self, optimizer: Rule) -> Any:
        options = {**optimizer.options, "lr": optimizer.options["lr"] * 1.0001}
        return super().optimizing(Rule(optimizer.kind, options))


class OwnShardKept(Zero):
    """What the other ranks have stepped does not arrive."""

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)
        made._sync_params = lambda: None
        return made


class StateEverywhere(Ddp):
    """It says that it divides the optimizer's state, and does not."""

    axes = ("zero",)


class MeanOfParts(Ddp):
    """Of the parts of a share it takes the mean of their means, however large each is."""

    def step(self, joined: Minibatch) -> float:
        rank, ranks = self.replicas
        mine, parts = joined.part(rank, ranks), self.plan.accumulate
        total = torch.zeros((), dtype=next(self.model.parameters()).dtype)
        for number in range(parts):
            part = mine.part(number, parts)
            with nullcontext() if number == parts - 1 else self.accumulating():
                loss = mean_loss(self.model(part.x), part.y) * (len(mine) / parts / len(joined))
                (loss * ranks).backward()
            total = total + loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.summed(total)


class PiecesOfEach(Zero):
    """An honest one: of a state that is cut in as many pieces as there are ranks, it has one."""

    def placements(self) -> Held:
        rank, ranks = self.replicas
        whole = {name: p.numel() for name, p in self.named.items()}
        return Held(whole, {name: (n + rank) // ranks for name, n in whole.items()})


class StateOnOneRank(Zero):
    """Rank 0 has the state of all parameters."""

    def placements(self) -> Held:
        whole = {name: p.numel() for name, p in self.named.items()}
        return Held(whole, {} if self.world.rank else whole)


class NotSharded(Ddp):
    """It says that it shards, and does not."""

    axes = ("fsdp",)


class RowOff(Fsdp2):
    """A gathered weight is a row off."""

    def parameters(self) -> Mapping[str, torch.Tensor]:
        whole = {name: p.detach() for name, p in super().parameters().items()}
        return {**whole, "first.up.weight": whole["first.up.weight"].roll(1, 0)}


class NothingSplit(TensorParallel):
    """No name of the plan is met: nothing is split, and all is right."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, replace(plan, split={}))


class Unreduced(torch.autograd.Function):
    """Backward, each rank's part of the gradient of the inputs is taken for all of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mesh: Any) -> Any:  # noqa: ARG004 (torch gives it)
        return DTensor.from_local(x, mesh, [Replicate()], run_check=False)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:  # noqa: ARG004
        return dy.to_local(), None


class NoAllreduceInBackward(TensorParallel):
    def distributed(self, model: nn.Sequential) -> nn.Module:
        def unreduced(module: nn.Module, inputs: Any) -> Any:
            return (Unreduced.apply(inputs[0], self.mesh["tp"]),)

        for name, by in self.plan.split.items():
            if by == "columns":
                model.get_submodule(name).register_forward_pre_hook(unreduced)
        return super().distributed(model)


class NotScaled(Pipeline):
    """Gradients of microbatches are added up, and not divided by their number."""

    @staticmethod
    def schedule(stage: PipelineStage, parts: int, **given: Any) -> Any:
        return ScheduleGPipe(stage, parts, scale_grads=False, **given)


class LastMicrobatchLost(Pipeline):
    @staticmethod
    def schedule(stage: PipelineStage, parts: int, loss_fn: Any) -> Any:
        calls = []

        def lossy(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            calls.append(None)
            loss = loss_fn(output, y)
            return loss if len(calls) % parts else loss.detach() + 0 * loss

        return ScheduleGPipe(stage, parts, loss_fn=lossy)


class LastMicrobatchLostLater(ZeroBubbleV):
    """The gradients of the weights of a microbatch are dropped, those of the inputs are not."""

    @staticmethod
    def schedule(stages: list[PipelineStage], parts: int, **given: Any) -> Any:
        for stage in stages:
            own = stage.backward_weight_one_chunk

            def lossy(chunk: int, *rest: Any, own: Any = own, **named: Any) -> Any:
                return None if chunk == parts - 1 else own(chunk, *rest, **named)

            stage.backward_weight_one_chunk = lossy
        return ScheduleZBVZeroBubble(stages, parts, **given)


class NeverAveraged(PostLocalSgd):
    """Ranks stop exchanging gradients, and exchange nothing else."""

    def optimizing(self, optimizer: Rule) -> Any:
        return Ddp.optimizing(self, optimizer)


class AveragedTooLate(PostLocalSgd):
    """In the second step ranks exchange nothing."""

    def optimizing(self, optimizer: Rule) -> Any:
        made = super().optimizing(optimizer)
        made.averager.warmup_steps = 2
        return made


class ReplicasApart(Pipeline):
    """Each pipeline trains on its share, and keeps its gradients."""

    def sharded(self, model: nn.Sequential, **options: Any) -> nn.Module:
        return model


class FirstShareTwice(Pipeline):
    @property
    def replicas(self) -> tuple[int, int]:
        return 0, super().replicas[1]


class WholeStages(Pipeline):
    """The plan is not applied along `tp`."""

    def divide(self, model: nn.Sequential) -> None:
        pass


class Resharded(ZeroBubble):
    """Weights are freed after the forward pass, as by default: torch loses their gradients."""

    def sharded(self, model: nn.Sequential, **options: Any) -> nn.Module:
        return super().sharded(model)


class ParameterMissing(Ddp):
    def parameters(self) -> Mapping[str, torch.Tensor]:
        named = dict(super().parameters())
        named.pop("leave.bias")
        return named


class OneBucket(Ddp):
    """Honest: all gradients in one, as views."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)


class NamedBfloat16(ReducedInBfloat16):
    """Honest: it names its rounding."""

    rounding = "bfloat16"


class ByHand(Engine):
    """Honest, and a stranger's: the mean gradient by an allreduce of each."""

    def start(self, world: World) -> None:
        self.world = world

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.optimizer = optimizer(model.parameters())

    def step(self, joined: Minibatch) -> float:
        mine = joined.part(self.world.rank, self.world.size)
        loss = mean_loss(self.model(mine.x), mine.y) * (len(mine) / len(joined))
        loss.backward()
        for p in self.model.parameters():
            assert p.grad is not None
            dist.all_reduce(p.grad)
        if self.plan.clip < inf:
            self.norm = float(clip_grad_norm_(self.model.parameters(), self.plan.clip))
        self.optimizer.step()
        self.optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total)
        return float(total)

    def parameters(self) -> Mapping[str, torch.Tensor]:
        return dict(self.model.named_parameters())

    def placements(self) -> Held:
        every = {name: p.numel() for name, p in self.model.named_parameters()}
        return Held(every, every)


class WholeBatchByHand(ByHand):
    """Each rank trains on all samples by itself: no gradient travels."""

    def step(self, joined: Minibatch) -> float:
        loss = mean_loss(self.model(joined.x), joined.y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss)


class NoFormula(ByHand):
    """It names a rounding, and nobody can tell whether it makes use of it."""

    rounding = "float16"


class OtherFormat(ReducedInBfloat16):
    """It names float16, and has gradients travel in bfloat16."""

    rounding = "float16"


class Recomputed(Ddp):
    """Honest: each child is computed once more in the backward pass."""

    def distributed(self, model: nn.Sequential) -> nn.Module:
        for child in model:
            child.forward = partial(checkpoint, child.forward, use_reentrant=False)
        return super().distributed(model)
