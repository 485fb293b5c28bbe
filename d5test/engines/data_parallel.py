"""Engines of PyTorch that share out samples: DDP, PostLocalSGD, ZeRO stage 1, FSDP2."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from math import ceil, inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from d5test.engines.engine import Engine, Held, Minibatch, Plan, Rule, World, mean_loss

BUCKETS = 8
"""About how many buckets of gradients a model has: small ones have several, too."""
LEAST, MOST = 2**-10, 25
"""MiB of a bucket. The most is torch's default."""
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)
"""Every slot has a key, so that a rank of a pipeline writes those of its own parameters."""
MISMATCH = "fully_shard reduces what gradients a rank has: where others have less, gloo aborts"
UNUSED = "torch's reducer waits for the gradient of each parameter (find_unused_parameters=False)"


def whole(p: torch.Tensor) -> torch.Tensor:
    """All of a tensor that may be distributed."""
    return p.full_tensor() if isinstance(p, DTensor) else p


def here(p: torch.Tensor) -> int:
    """How many elements of it are on this rank."""
    return int((p.to_local() if isinstance(p, DTensor) else p).numel())


def sharded(model: nn.Sequential, mesh: DeviceMesh, **options: Any) -> nn.Module:
    """Child by child, or all at once where two of them share a parameter."""
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if len(names) == len(list(model.parameters())):
        for child in model:
            fully_shard(child, mesh=mesh, **options)
    module: nn.Module = fully_shard(model, mesh=mesh, **options)
    return module


class TorchEngine(Engine):
    """What these have in common: a mesh, a module, an optimizer."""

    threads = True
    model: nn.Module
    optimizer: Any

    def start(self, world: World) -> None:
        """See `Engine`."""
        self.world = world
        names = tuple(world.mesh)
        self.mesh = init_device_mesh("cpu", tuple(world.mesh.values()), mesh_dim_names=names)

    @property
    def named(self) -> Mapping[str, torch.Tensor]:
        """This rank's parameters, by their names in the model."""
        return dict(self.model.named_parameters())

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """See `Engine`."""
        return {name: whole(p) for name, p in self.named.items()}

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """See `Engine`."""
        return dict(self.model.named_buffers())

    def placements(self) -> Held:
        """See `Engine`."""
        states = self.optimizer.state
        return Held(
            {name: here(p) for name, p in self.named.items()},
            {
                name: max((here(slot) for slot in states[p].values() if slot.ndim), default=0)
                for name, p in self.named.items()
                if p in states
            },
        )

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer, options=BY_NAME)
        return {"model": model, "optimizer": optimizer}

    def save(self, folder: Path) -> None:
        """By `torch.distributed.checkpoint`."""
        dcp.save(self._state(), checkpoint_id=folder)

    def load(self, folder: Path) -> None:
        """Into this mesh's shards."""
        state = self._state()
        # torch gives a fresh optimizer all slots by a step without a gradient, which counts,
        # and puts decayed weights into moments; a checkpoint has those that were used
        for slot in chain.from_iterable(of.values() for of in self.optimizer.state.values()):
            slot.zero_()
        planner = DefaultLoadPlanner(allow_partial_load=True)
        dcp.load(state, checkpoint_id=folder, planner=planner)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=BY_NAME,
        )


class DataParallel(TorchEngine):
    """Each rank has a share of the samples. Gradients are averaged over the ranks."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """See `Engine`."""
        self.plan = plan
        self.model = self.distributed(model)
        self.optimizer = self.optimizing(optimizer)

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """The module that averages."""
        raise NotImplementedError

    def optimizing(self, optimizer: Rule) -> Any:
        """The optimizer of its parameters."""
        return optimizer(self.model.parameters())

    def accumulating(self) -> AbstractContextManager[None]:
        """Within: a backward pass keeps its gradients to the rank."""
        return nullcontext()

    @property
    def replicas(self) -> tuple[int, int]:
        """Which share of the samples this rank has, and how many there are."""
        return self.world.rank, self.world.size

    def step(self, joined: Minibatch) -> float:
        """The loss of a part counts as it has samples: the mean over ranks is that of all."""
        rank, ranks = self.replicas
        mine, parts = joined.part(rank, ranks), self.plan.accumulate
        total = torch.zeros((), dtype=joined.x.dtype if joined.x.is_floating_point() else None)
        for number in range(parts):
            part = mine.part(number, parts)
            with nullcontext() if number == parts - 1 else self.accumulating():
                loss = mean_loss(self.model(part.x), part.y) * (len(part) / len(joined))
                (loss * ranks).backward()
            total = total + whole(loss.detach())
        if self.plan.clip < inf:
            self.norm = float(whole(clip_grad_norm_(self.model.parameters(), self.plan.clip)))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.summed(total)

    def summed(self, loss: torch.Tensor) -> float:
        """Over the shares of all ranks."""
        dist.all_reduce(loss)
        return float(loss)


class Ddp(DataParallel):
    """`DistributedDataParallel`, with options."""

    name = "torch-ddp"
    axes = ("dp",)
    statistics = "first"
    model: DistributedDataParallel
    options: Mapping[str, Any] = MappingProxyType({})
    lacks: Mapping[str, str] = MappingProxyType({"branched": UNUSED})

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """Of several buckets."""
        share = sum(p.nbytes for p in model.parameters()) / BUCKETS / 2**20
        bucket = min(max(share, LEAST), MOST)
        return DistributedDataParallel(model, bucket_cap_mb=bucket, **self.options)

    def accumulating(self) -> AbstractContextManager[None]:
        """Without the allreduce."""
        context: AbstractContextManager[None] = self.model.no_sync()
        return context

    def gives(self, itemsize: int) -> int:
        """All gradients, to an allreduce, and buffers that are rank 0's, to a broadcast."""
        numel: int = sum(p.numel() for p in self.named.values())
        buffers = self.buffers().values() if self.statistics == "first" else ()
        broadcast: int = sum(b.nbytes for b in buffers if b.is_floating_point())
        return itemsize * numel + broadcast

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """Those of the module within."""
        return dict(self.model.module.named_buffers())

    @property
    def named(self) -> Mapping[str, torch.Tensor]:
        """Those of the module within."""
        return dict(self.model.module.named_parameters())


class StaticDdp(Ddp):
    """Gradients are views of the buckets, and the graph is said to be the same in each step."""

    name = "torch-ddp-static"
    options = MappingProxyType({"gradient_as_bucket_view": True, "static_graph": True})
    lacks = MappingProxyType(
        {
            "accumulate": "torch's reducer fails its own assertion: no_sync with a static graph",
            "branched": UNUSED,
        }
    )


class SearchingDdp(Ddp):
    """It looks for parameters that a step does not use."""

    name = "torch-ddp-unused"
    options = MappingProxyType({"find_unused_parameters": True})
    lacks: Mapping[str, str] = MappingProxyType({})


class Float16Ddp(Ddp):
    """Gradients travel in float16, by torch's own hook."""

    name = "torch-ddp-fp16"
    rounding = "float16"

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """With the hook."""
        module = super().distributed(model)
        module.register_comm_hook(None, fp16_compress_hook)
        return module


class PostLocalSgd(Ddp):
    """`PostLocalSGDOptimizer`: from the second step on parameters are averaged, not gradients.

    They are averaged after each step. So it is where the run on one process is as long as a step
    is linear in the gradient: the mean of the ranks' steps is the step by their mean.
    """

    name = "torch-post-local-sgd"
    averages = True
    lacks = MappingProxyType(
        {
            "adamw": "its step is not linear in the gradient: the mean of the ranks' is another",
            "clip": "each rank clips its own gradient",
            "resumed": "each rank has a momentum of its own, and none says whose a checkpoint has",
            "branched": UNUSED,
        }
    )

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """With the hook, so that no gradient travels from the second step on."""
        module = super().distributed(model)
        world = dist.group.WORLD
        state = PostLocalSGDState(world, world, 1, post_local_gradient_allreduce=False)
        module.register_comm_hook(state, post_localSGD_hook)
        return module

    def optimizing(self, optimizer: Rule) -> Any:
        """With an averager. Bytes are `Ddp`'s: parameters travel instead of gradients."""
        from torch.distributed.optim import PostLocalSGDOptimizer  # see `Zero`

        with warnings.catch_warnings():  # that to average in each step is of no use
            warnings.simplefilter("ignore")
            averager = PeriodicModelAverager(period=1, warmup_steps=1)
        return PostLocalSGDOptimizer(super().optimizing(optimizer), averager)


class Zero(Ddp):
    """`ZeroRedundancyOptimizer`: each rank steps some of the parameters, and hands them out."""

    name = "torch-zero"
    axes = ("zero",)

    def optimizing(self, optimizer: Rule) -> Any:
        """Over the optimizer's class."""
        # its package warns of torch.jit 66 times: within a test pytest counts these, and is brief
        from torch.distributed.optim import ZeroRedundancyOptimizer

        self.zero = ZeroRedundancyOptimizer(
            self.model.parameters(), optimizer_class=optimizer.kind, **optimizer.options
        )
        return self.zero

    def gives(self, itemsize: int) -> int:
        """All gradients to an allreduce, and all parameters to broadcasts."""
        parameters: int = sum(p.nbytes for p in self.named.values())
        return super().gives(itemsize) + parameters

    def save(self, folder: Path) -> None:
        """Rank 0 writes it, with the whole state: `get_state_dict` refuses this optimizer."""
        self.zero.consolidate_state_dict(to=0)
        if not self.world.rank:
            state = {"model": self.model.state_dict(), "optimizer": self.zero.state_dict()}
            torch.save(state, folder / "state.pt")

    def load(self, folder: Path) -> None:
        """Each rank reads it, and keeps its part of the state."""
        state = torch.load(folder / "state.pt")
        self.model.load_state_dict(state["model"])
        self.zero.load_state_dict(state["optimizer"])

    def placements(self) -> Held:
        """The state is that of the optimizer within."""
        state = self.zero.optim.state
        held = {
            name: max(here(slot) for slot in state[p].values() if slot.ndim)
            for name, p in self.named.items()
            if p in state
        }
        return Held({name: here(p) for name, p in self.named.items()}, held)


class Fsdp2(DataParallel):
    """`fully_shard`: each rank holds some rows of each parameter; replicated along `dp`."""

    name = "torch-fsdp2"
    axes = ("dp", "fsdp")
    along = "fsdp"
    statistics = "own"
    policy = MixedPrecisionPolicy()
    lacks: Mapping[str, str] = MappingProxyType({"branched": MISMATCH})

    def start(self, world: World) -> None:
        """With both axes if it has replicas: `fully_shard` shards along a single one."""
        super().start(replace(world, mesh={**world.mesh, "fsdp": world.mesh.get("fsdp", 1)}))

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """See `sharded`."""
        return sharded(model, self.mesh, mp_policy=self.policy)

    def gives(self, itemsize: int) -> int:
        """Its rows to a gather forward and backward, all rows to a reduction.

        Rows are padded, so that all shards are as long as the longest. Along `dp` the gradient of
        a shard is added up. Parameters of the root, where tied ones are, are gathered once. Of
        one rank nothing is gathered, nor reduced.
        """
        ranks, replicated = self.world.mesh["fsdp"], "dp" in self.world.mesh
        shard: int = sum(p.numel() // len(p) * ceil(len(p) / ranks) for p in self.named.values())
        by_child = all(isinstance(child, FSDPModule) for child in self.model.children())
        gathers = self.plan.accumulate * (2 if by_child else 1) * (ranks > 1)
        own = next(self.model.parameters()).dtype
        width: int = (getattr(torch, self.computes) if self.computes else own).itemsize
        return shard * (itemsize * (ranks * (ranks > 1) + replicated) + width * gathers)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Without the reduction."""
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)


class Bfloat16Fsdp2(Fsdp2):
    """Forward and backward in bfloat16; gradients are reduced, and parameters stepped, in float32.

    Outputs are float32 again, so that the loss is.
    """

    name = "torch-fsdp2-bf16"
    computes, rounding = "bfloat16", "float32"
    lacks = MappingProxyType(
        {
            **Fsdp2.lacks,
            "adamw": "in bfloat16 its steps do not show over how many ranks the mean is",
            "resumed": "in bfloat16 a checkpoint that is rounded to it does not show",
            "experts": "in bfloat16 a gate may leave out another expert than in float64",
            "batchnorm": "torch's batch_norm on CPUs takes no weights in bfloat16 beside "
            "statistics in float32: expected scalar type BFloat16 but found Float",
        }
    )
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32
    )
