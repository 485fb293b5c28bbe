"""The models of a case, in PyTorch, as large as its `Sizes` say.

A model is a sequence of children, which a pipeline can cut anywhere. There is no kink (Gelu, no
Relu) on the other side of which a rounding error would lead, but for the choice of experts; and no
parameter whose gradient is zero, as the bias of an attention's keys is: a lost gradient must show.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

import torch
from torch import nn

from d5test.backends.base import Unsupported
from d5test.engines.cases import Sizes
from d5test.engines.engine import SIDE, Side

HEAD = 2
"""Columns of a head of attention."""
COLORS, GROUPS = 3, 2
STRIDES = {"first": 1, "second": 2, "third": 2}
"""Of the children of a residual network."""
MOMENTUM, EPSILON = 2.0**-3, 2.0**-7
"""Of batch normalisation: no dtype rounds them."""
RATE = 0.25
"""Of dropout: the share that is dropped. It is not 1/2, which cannot be told from what is left."""
NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")
"""Of children between the one that enters and the one that leaves."""


class Pair(nn.Module):  # type: ignore[misc]
    """(n, ..., width) to (n, ..., width), by a wider layer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Up, Gelu, down."""
        y: torch.Tensor = self.down(nn.functional.gelu(self.up(x)))
        return y


class Dropout(nn.Dropout):  # type: ignore[misc]
    """PyTorch's own; in a sequential run it multiplies by the factors that ranks have drawn."""

    factors: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        y: torch.Tensor = super().forward(x) if self.factors is None else x * self.factors
        return y


class Dropping(Pair):
    """A pair of layers, between which numbers are dropped: (n, width) to the same."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width, hidden)
        self.drop = Dropout(RATE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Up, Gelu, dropout, down."""
        y: torch.Tensor = self.down(self.drop(nn.functional.gelu(self.up(x))))
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
    """Causal attention of some heads, (n, length, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, heads * HEAD, bias=False) for _ in range(3))
        self.out = nn.Linear(heads * HEAD, width)

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

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.between, self.pair = nn.LayerNorm(width), Pair(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, length, width) to the same."""
        x = x + self.attention(self.before(x))
        y: torch.Tensor = x + self.pair(self.between(x))
        return y


class Experts(nn.Module):  # type: ignore[misc]
    """A mixture of pairs of layers, (n, width) to the same. Shazeer et al., ICLR 2017.

    A gate weighs them, sample by sample; the one with the lowest score does not count.
    """

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.expert = nn.ModuleList(Pair(width, hidden) for _ in range(experts))

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

    def __init__(self, words: int, length: int, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place = nn.Parameter(torch.empty(length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both embeddings."""
        y: torch.Tensor = self.word(x) + self.place
        return y


Children = OrderedDict[str, nn.Module]


def _mlp(s: Sizes) -> Children:
    return _deep(s, lambda: Pair(s.width, s.hidden))


def _deep(s: Sizes, block: Callable[[], nn.Module]) -> Children:
    """Vectors in, some blocks, classes out."""
    blocks = {name: block() for name in NAMES[: s.depth]}
    return OrderedDict(
        enter=nn.Linear(s.inputs, s.width, bias=False),
        **blocks,
        leave=nn.Linear(s.width, s.classes),
    )


def _branched(s: Sizes) -> Children:
    return OrderedDict(_mlp(s), enter=Branched(s.inputs, s.width))


def _transformer(s: Sizes) -> Children:
    blocks = {name: Block(s.width, s.heads, s.hidden) for name in NAMES[: s.depth]}
    return OrderedDict(
        enter=Words(s.words, s.length, s.width), **blocks, leave=nn.Linear(s.width, s.words)
    )


def _experts(s: Sizes) -> Children:
    return _deep(s, lambda: Experts(s.width, s.hidden, s.experts))


def _residual(s: Sizes) -> Children:
    """A ResNet of eight layers, however deep others are."""
    return OrderedDict(
        enter=nn.Conv2d(COLORS, s.channels, 3, padding=1, bias=False),
        first=Residual(s.channels, s.channels, STRIDES["first"]),
        second=Residual(s.channels, 2 * s.channels, STRIDES["second"]),
        third=Residual(2 * s.channels, 2 * s.channels, STRIDES["third"]),
        leave=Pooled(2 * s.channels, s.classes),
    )


def _dropout(s: Sizes) -> Children:
    return _deep(s, lambda: Dropping(s.width, s.hidden))


def _batchnorm(s: Sizes) -> Children:
    return _deep(s, lambda: Normalised(s.width, s.hidden))


MODELS: Mapping[str, Callable[[Sizes], Children]] = {
    "mlp": _mlp, "branched": _branched, "transformer": _transformer,
    "experts": _experts, "residual": _residual, "batchnorm": _batchnorm, "dropout": _dropout,
}  # fmt: skip
COLUMNS, ROWS = ("up", "q", "k", "v"), ("down", "out")
"""Linear modules that tensor parallelism splits, by the columns of their output or the rows of
their input."""


def check_split(split: Mapping[str, Side], model: nn.Module, ranks: int) -> None:
    """Raise `Unsupported` where ranks along `tp` would have different parts, or parts of heads."""
    for name, by in split.items():
        shape = tuple(model.get_submodule(name).weight.shape)
        unit = HEAD if name.rpartition(".")[2] in ("q", "k", "v", "out") else 1
        if shape[SIDE[by]] % (unit * ranks):
            raise Unsupported(f"{name} {shape} cannot be split among {ranks} ranks")
