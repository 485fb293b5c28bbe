"""DeepSpeed's ZeRO, stages 0 to 3, on gloo.

Requirements: DeepSpeed computes on the CPU, and takes the process group that is there. Its
collectives in shared memory are left out: they are compiled when they are first used, and a build
that was killed leaves a lock on which all later runs hang. What it keeps of a process group is
released before that one ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from d5test.backends.base import Unsupported
from d5test.engines.data_parallel import DataParallel
from d5test.engines.engine import Held, Minibatch, Plan, Rule, World, mean_loss

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
from deepspeed.utils import groups, logger

COMPILED = "deepspeed_shm_comm"
TAG = "d5test"
ZERO_FOR_UNUSED = "what no rank uses has a gradient of zero, and is stepped"


class DeepSpeed(DataParallel):
    """Stage 0: each rank has all, and gradients are averaged."""

    name = "deepspeed"
    threads = False
    version = f"deepspeed {deepspeed.__version__}, torch {torch.__version__}"
    axes: tuple[str, ...] = ("dp",)
    stage = 0
    statistics = "own"
    lacks: Mapping[str, str] = MappingProxyType(
        {
            "clip": "without ZeRO it does not say the norm of the gradient",
            "branched": ZERO_FOR_UNUSED,
        }
    )

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`."""
        dtype = next(model.parameters()).dtype
        if dtype != torch.float32:
            raise Unsupported(f"DeepSpeed trains no {dtype}".replace("torch.", ""))

    def start(self, world: World) -> None:
        """In the process group that is there."""
        self.world = world
        logger.setLevel("ERROR")
        deepspeed.ops.__compatible_ops__[COMPILED] = False
        self.environment = patch.dict(os.environ, LOCAL_RANK=str(world.rank))  # it demands one
        self.environment.start()
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """See `Engine`."""
        self.plan, self.model = plan, model
        self.engine, self.optimizer, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer(model.parameters()), config=self.config(plan)
        )

    def config(self, plan: Plan) -> dict[str, Any]:
        """As in its JSON file."""
        return {
            "train_micro_batch_size_per_gpu": 1,  # it is asked for, and changes no result
            "gradient_accumulation_steps": plan.accumulate,
            "gradient_clipping": plan.clip if plan.clip < inf else 0.0,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": self.stage, "stage3_param_persistence_threshold": 0},
        }

    def step(self, joined: Minibatch) -> float:
        """It takes the mean over ranks and over parts itself."""
        rank, ranks = self.replicas
        mine, parts = joined.part(rank, ranks), self.plan.accumulate
        total = torch.zeros((), dtype=torch.float32)
        for number in range(parts):
            part = mine.part(number, parts)
            loss = mean_loss(self.engine(part.x), part.y) * (len(part) / len(joined))
            self.engine.backward(loss * (ranks * parts))
            self.engine.step()
            total += loss.detach()
        if self.plan.clip < inf:
            self.norm = float(self.engine.get_global_grad_norm())
        return self.summed(total)

    def save(self, folder: Path) -> None:
        """By DeepSpeed, for the same number of ranks."""
        self.engine.save_checkpoint(str(folder), tag=TAG)

    def load(self, folder: Path) -> None:
        """See `Engine`."""
        self.engine.load_checkpoint(str(folder), tag=TAG)

    def close(self) -> None:
        """See `Engine`."""
        if hasattr(self, "engine"):
            self.engine.destroy()
        groups._release_process_group_references()  # noqa: SLF001 (no other way)
        deepspeed.comm.comm.cdb = None
        self.environment.stop()


class StageOne(DeepSpeed):
    """Stage 1: each rank has a part of the optimizer's state, of all parameters in a row."""

    name = "deepspeed-zero1"
    axes = ("zero",)
    stage = 1
    lacks = MappingProxyType({"branched": ZERO_FOR_UNUSED})

    def placements(self) -> Held:
        """Of the state what lies in this rank's part."""
        state = {}
        for name, p in self.named.items():
            mapping = getattr(p, "_hp_mapping", None)
            if mapping is not None and mapping.optim_fragment:
                state[name] = mapping.get_hp_fragment_address().numel
        return Held({name: p.numel() for name, p in self.named.items()}, state)


class StageTwo(StageOne):
    """Stage 2: and of the gradients."""

    name = "deepspeed-zero2"
    stage = 2


class StageThree(StageOne):
    """Stage 3: and of the parameters, each by itself."""

    name = "deepspeed-zero3"
    axes = ("fsdp",)
    stage = 3

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """See `Engine`."""
        with deepspeed.zero.GatheredParameters([*self.named.values()]):
            return {name: p.detach().clone() for name, p in self.named.items()}

    def placements(self) -> Held:
        """Of each parameter as many elements as are left of it at this rank's place."""
        held = {}
        for name, p in self.named.items():
            part = p.ds_tensor.numel()
            held[name] = min(max(p.ds_numel - self.world.rank * part, 0), part)
        return Held(held, held)
