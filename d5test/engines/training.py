"""A training of a case in a dtype: its model, data, optimizer and plan, the same on each rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from d5test.case import Tensor
from d5test.engines.cases import BETWEEN, OPTIMIZERS, STEPS, Case
from d5test.engines.dropping import Drops
from d5test.engines.engine import Engine, Minibatch, Plan, Rule
from d5test.engines.models import COLORS, COLUMNS, MODELS, ROWS


@dataclass(frozen=True)
class Training:
    """A case in a dtype, for so many ranks: the same on each of them.

    dtype       a name
    statistics  what ranks do with buffers, if the model has any: see `Engine`
    computes    the format of the forward and the backward pass, by name; empty: the dtype
    averages    whether ranks average their parameters after a step
    drops       of a model with dropout, what an engine's ranks have drawn; before that, nothing
    """

    case: Case
    dtype: str
    ranks: int
    statistics: str = "first"
    computes: str = ""
    averages: bool = False
    drops: Drops | None = None

    @classmethod
    def of(cls, case: Case, dtype: str, ranks: int, engine: Engine) -> Training:
        """Of an engine, by what it says of itself that the case asks for."""
        statistics = engine.statistics if "batchnorm" in case.features else cls.statistics
        return cls(case, dtype, ranks, statistics, engine.computes, engine.averages)

    def model(self, dtype: torch.dtype | None = None) -> nn.Sequential:
        """With its initial parameters, numbers of the dtype under test; perhaps in another one."""
        model = nn.Sequential(MODELS[self.case.model](self.case.sizes))
        if self.case.tied:
            children = dict(model.named_children())
            children["second"].up.weight = children["first"].up.weight
        model = model.to(dtype or getattr(torch, self.dtype))
        with torch.no_grad():
            for i, (name, p) in enumerate(model.named_parameters()):
                # near 1 a normalisation's weight; a power of two keeps what is drawn exact
                scale = 0.125 if p.ndim == 1 else 2.0 ** np.round(-0.5 * np.log2(p[0].numel()))
                drawn = scale * self._drawn(tuple(p.shape), i).double()
                if name.endswith(("before.weight", "between.weight")):
                    drawn = (drawn + 1).to(getattr(torch, self.dtype)).double()
                p.copy_(drawn)
        return model

    @property
    def rule(self) -> Rule:
        """The optimizer."""
        name = self.case.optimizer
        return Rule(getattr(torch.optim, name), {**OPTIMIZERS[name], **dict(self.case.options)})

    @property
    def plan(self) -> Plan:
        """How a step is to be made."""
        splits: dict[str, Any] = {
            name: "columns" if last in COLUMNS else "rows"
            for name, module in self.model().named_modules()
            if isinstance(module, nn.Linear)
            and (last := name.rpartition(".")[2]) in (*COLUMNS, *ROWS)
        }
        return Plan(self.case.accumulate, self.clip, splits)

    @cached_property
    def clip(self) -> float:
        """The largest norm of the gradient of all parameters."""
        from d5test.engines.sequential import between  # which follows a training

        return between(self) if self.case.clip == BETWEEN else self.case.clip

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters, by name."""
        return {name: tuple(p.shape) for name, p in self.model().named_parameters()}

    @cached_property
    def unused(self) -> frozenset[str]:
        """The parameters that no sample uses before a checkpoint is written."""
        if not (self.case.resumed and self.case.model == "branched"):
            return frozenset()
        return frozenset(name for name in self.shapes if name.startswith("enter.some."))

    @cached_property
    def buffers(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the buffers, by name."""
        return {name: tuple(b.shape) for name, b in self.model().named_buffers()}

    def format(self, name: str) -> str:
        """The dtype of a parameter or a buffer, of which some are counts."""
        return "int64" if name.endswith("num_batches_tracked") else self.dtype

    def buffer(self, name: str, rank: int) -> str:
        """What a rank's buffer is called, in a run of all ranks."""
        return f"{name} of rank {rank}"

    def batches(self, dtype: torch.dtype | None = None) -> list[Minibatch]:
        """The joined minibatch of each step; inputs perhaps in another dtype."""
        case, sizes, made = self.case, self.case.sizes, []
        reads = case.model == "transformer"
        side = sizes.side
        sample = (COLORS, side, side) if case.model == "residual" else (sizes.inputs,)
        for step in range(STEPS):
            n, chance = case.samples(step, self.ranks), np.random.Philox(key=(case.seed, step))
            classes = (n, sizes.length) if reads else (n,)
            kinds = sizes.words if reads else sizes.classes
            words = chance.random_raw(2 * int(np.prod(classes))).reshape(2, *classes) >> 33
            x = torch.from_numpy((words[0] % kinds).astype(np.int64))
            y = torch.from_numpy((words[1] % kinds).astype(np.int64))
            if not reads:
                x = self._drawn((n, *sample), 1000 + step).to(dtype or getattr(torch, self.dtype))
            if case.model == "branched":
                x[:, 0] = torch.where(self._taking(step), x[:, 0].abs(), -x[:, 0].abs())
            factors = self.drops.factors[step] if self.drops else ()
            made.append(Minibatch(x, y, factors))
        return made

    @property
    def shares(self) -> list[list[int]]:
        """Of each step, the samples of each rank."""
        ranks = range(self.ranks)
        return [[len(each.part(rank, self.ranks)) for rank in ranks] for each in self.batches()]

    def _taking(self, step: int) -> torch.Tensor:
        """Which samples take the branch: of the last rank, of none, of all but the first, of all.

        Half of a rank's, step by step. Where a checkpoint is written, none before that: what was
        never used has no state that could be in it.
        """
        every = range(self.ranks)
        last, none, others = every[-1:], every[:0], every[1:]
        taking = (none, none, last, none) if self.case.resumed else (last, none, others, every)
        sample = torch.arange(self.case.samples(step, self.ranks))
        return torch.isin(sample // self.case.sizes.own, torch.tensor([*taking[step]])) & (
            sample % 2 == 0
        )

    def _drawn(self, shape: tuple[int, ...], number: int) -> torch.Tensor:
        return torch.from_numpy(
            Tensor(shape, self.dtype, ("normal",)).array(self.case.seed, number)
        )
