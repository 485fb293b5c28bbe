"""The models and the data of a case, in PyTorch.

A model is a sequence of children, which a pipeline can cut anywhere. Widths of what tensor
parallelism splits are divisible by 2, 3 and 4. There is no kink (Gelu, no Relu) on the other side
of which a rounding error would lead, and no parameter whose gradient is zero, as the bias of an
attention's keys is: a lost gradient must show.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from d5test.case import Tensor
from d5test.engines.cases import OPTIMIZERS, OWN, STEPS, Case
from d5test.engines.engine import Engine, Minibatch, Plan, Rule

INPUTS, WIDTH, HIDDEN, CLASSES = 7, 10, 24, 5
WORDS, LENGTH, HEADS, HEAD = 11, 6, 12, 2
EXPERTS = 3
IMAGE, CHANNELS, GROUPS = (3, 7, 7), 6, 2
MOMENTUM, EPSILON = 2.0**-3, 2.0**-7
"""Of batch normalisation: no dtype rounds them."""
SEED = 1


class Pair(nn.Module):  # type: ignore[misc]
    """(n, ..., width) to (n, ..., width), by a wider layer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Up, Gelu, down."""
        y: torch.Tensor = self.down(nn.functional.gelu(self.up(x)))
        return y


class Normalised(nn.Module):  # type: ignore[misc]
    """A pair of layers, between which a minibatch is normalised: (n, width) to the same.

    There is no bias: before a normalisation its gradient is zero. Ioffe and Szegedy, ICML 2015.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.between = nn.BatchNorm1d(hidden, EPSILON, MOMENTUM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Up, normalised, Gelu, down."""
        y: torch.Tensor = self.down(nn.functional.gelu(self.between(self.up(x))))
        return y


class Branched(nn.Module):  # type: ignore[misc]
    """(n, inputs) to (n, outputs): two linear modules, of which some samples take one alone.

    Where no sample takes the second, its parameters are not used, and have no gradient.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.every, self.some = nn.Linear(inputs, outputs, bias=False), nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples whose first number is positive take both."""
        y: torch.Tensor = self.every(x)
        takes = x[:, :1] > 0
        if takes.any():
            y = y + takes.to(x.dtype) * self.some(x)
        return y


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention, (n, length, width) to the same; as many heads as there are columns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, HEADS * HEAD, bias=False) for _ in range(3))
        self.out = nn.Linear(HEADS * HEAD, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Softmax(q k^T / sqrt(d)) v."""
        q, k, v = (
            m(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for m in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) * HEAD**-0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        y: torch.Tensor = self.out((weights @ v).transpose(1, 2).flatten(-2))
        return y


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a pair of layers, each on what is normalised and beside a residual path."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width)
        self.between, self.pair = nn.LayerNorm(width), Pair(width, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, length, width) to the same."""
        x = x + self.attention(self.before(x))
        y: torch.Tensor = x + self.pair(self.between(x))
        return y


class Experts(nn.Module):  # type: ignore[misc]
    """A mixture of pairs of layers, (n, width) to the same. Shazeer et al., ICLR 2017.

    A gate weighs them, sample by sample; the one with the lowest score does not count.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, EXPERTS, bias=False)
        self.expert = nn.ModuleList(Pair(width, HIDDEN) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of their outputs, by the softmax of what is left of the gate's scores."""
        scores = self.gate(x)
        least = scores == scores.amin(-1, keepdim=True)
        weights = scores.masked_fill(least, -torch.inf).softmax(-1).unsqueeze(-1)
        y: torch.Tensor = (weights * torch.stack([e(x) for e in self.expert], -2)).sum(-2)
        return y


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions of what is normalised, beside a residual path. He et al., ECCV 2016.

    (n, channels, height, width) to (n, outputs, height / stride, width / stride). Groups are
    normalised: the statistics of a batch would be those of a rank's share.
    """

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.before, self.between = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, outputs)
        self.near = nn.Conv2d(channels, outputs, 3, stride, padding=1, bias=False)
        self.far = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.path = nn.Conv2d(channels, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both paths."""
        y = self.near(nn.functional.gelu(self.before(x)))
        y = self.far(nn.functional.gelu(self.between(y)))
        z: torch.Tensor = self.path(x) + y
        return z


class Pooled(nn.Linear):  # type: ignore[misc]
    """(n, channels, height, width) to (n, classes), by the mean of each channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A linear function of the means."""
        y: torch.Tensor = super().forward(x.mean((-2, -1)))
        return y


class Words(nn.Module):  # type: ignore[misc]
    """(n, length) words to (n, length, width), each word where it stands."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(WORDS, width)
        self.place = nn.Parameter(torch.empty(LENGTH, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both embeddings."""
        y: torch.Tensor = self.word(x) + self.place
        return y


def _mlp() -> OrderedDict[str, nn.Module]:
    return OrderedDict(
        enter=nn.Linear(INPUTS, WIDTH, bias=False),
        first=Pair(WIDTH, HIDDEN),
        second=Pair(WIDTH, HIDDEN),
        leave=nn.Linear(WIDTH, CLASSES),
    )


def _branched() -> OrderedDict[str, nn.Module]:
    return OrderedDict(_mlp(), enter=Branched(INPUTS, WIDTH))


def _deep() -> OrderedDict[str, nn.Module]:
    """Eight children: two stages for each of four ranks."""
    pairs = {f"pair{number}": Pair(WIDTH, HIDDEN) for number in range(6)}
    return OrderedDict(
        enter=nn.Linear(INPUTS, WIDTH, bias=False), **pairs, leave=nn.Linear(WIDTH, CLASSES)
    )


def _transformer() -> OrderedDict[str, nn.Module]:
    return OrderedDict(
        enter=Words(WIDTH), first=Block(WIDTH), second=Block(WIDTH), leave=nn.Linear(WIDTH, WORDS)
    )


def _experts() -> OrderedDict[str, nn.Module]:
    return OrderedDict(
        enter=nn.Linear(INPUTS, WIDTH, bias=False),
        first=Experts(WIDTH),
        second=Experts(WIDTH),
        leave=nn.Linear(WIDTH, CLASSES),
    )


def _residual() -> OrderedDict[str, nn.Module]:
    """A ResNet of eight layers."""
    return OrderedDict(
        enter=nn.Conv2d(IMAGE[0], CHANNELS, 3, padding=1, bias=False),
        first=Residual(CHANNELS, CHANNELS, 1),
        second=Residual(CHANNELS, 2 * CHANNELS, 2),
        third=Residual(2 * CHANNELS, 2 * CHANNELS, 2),
        leave=Pooled(2 * CHANNELS, CLASSES),
    )


def _batchnorm() -> OrderedDict[str, nn.Module]:
    return OrderedDict(
        enter=nn.Linear(INPUTS, WIDTH, bias=False),
        first=Normalised(WIDTH, HIDDEN),
        second=Normalised(WIDTH, HIDDEN),
        leave=nn.Linear(WIDTH, CLASSES),
    )


MODELS = {
    "mlp": _mlp, "deep": _deep, "branched": _branched, "transformer": _transformer,
    "experts": _experts, "residual": _residual, "batchnorm": _batchnorm,
}  # fmt: skip
COLUMNS, ROWS = ("up", "q", "k", "v"), ("down", "out")


@dataclass(frozen=True)
class Training:
    """A case in a dtype, for so many ranks: the same on each of them.

    dtype       a name
    statistics  what ranks do with buffers, if the model has any: see `Engine`
    computes    the format of the forward and the backward pass, by name; empty: the dtype
    """

    case: Case
    dtype: str
    ranks: int
    statistics: str = "first"
    computes: str = ""

    @classmethod
    def of(cls, case: Case, dtype: str, ranks: int, engine: Engine) -> Training:
        """Of an engine, by what it says of itself that the case asks for."""
        said = {"statistics": engine.statistics} if "batchnorm" in case.features else {}
        return cls(case, dtype, ranks, computes=engine.computes, **said)

    def model(self, dtype: torch.dtype | None = None) -> nn.Sequential:
        """With its initial parameters, numbers of the dtype under test; perhaps in another one."""
        model = nn.Sequential(MODELS[self.case.model]())
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
        return Rule(getattr(torch.optim, name), OPTIMIZERS[name])

    @property
    def plan(self) -> Plan:
        """How a step is to be made."""
        splits: dict[str, Any] = {
            name: "columns" if last in COLUMNS else "rows"
            for name, module in self.model().named_modules()
            if isinstance(module, nn.Linear)
            and (last := name.rpartition(".")[2]) in (*COLUMNS, *ROWS)
        }
        return Plan(self.case.accumulate, self.case.clip, splits)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters, by name."""
        return {name: tuple(p.shape) for name, p in self.model().named_parameters()}

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
        made = []
        for step in range(STEPS):
            n, chance = self.case.samples(step, self.ranks), np.random.Philox(key=(SEED, step))
            classes = (n, LENGTH) if self.case.model == "transformer" else (n,)
            kinds = WORDS if self.case.model == "transformer" else CLASSES
            words = chance.random_raw(2 * int(np.prod(classes))).reshape(2, *classes) >> 33
            x = torch.from_numpy((words[0] % kinds).astype(np.int64))
            y = torch.from_numpy((words[1] % kinds).astype(np.int64))
            if self.case.model != "transformer":
                sample = IMAGE if self.case.model == "residual" else (INPUTS,)
                x = self._drawn((n, *sample), 1000 + step).to(dtype or getattr(torch, self.dtype))
            if self.case.model == "branched":
                x[:, 0] = torch.where(self._taking(step), x[:, 0].abs(), -x[:, 0].abs())
            made.append(Minibatch(x, y))
        return made

    def _taking(self, step: int) -> torch.Tensor:
        """Which samples take the branch: of the last rank, of none, of all but the first, of all.

        Half of a rank's, step by step.
        """
        ranks = {0: [self.ranks - 1], 1: [], 2: range(1, self.ranks), 3: range(self.ranks)}[step]
        sample = torch.arange(self.case.samples(step, self.ranks))
        return torch.isin(sample // OWN, torch.tensor([*ranks])) & (sample % 2 == 0)

    def _drawn(self, shape: tuple[int, ...], number: int) -> torch.Tensor:
        return torch.from_numpy(Tensor(shape, self.dtype, ("normal",)).array(SEED, number))
