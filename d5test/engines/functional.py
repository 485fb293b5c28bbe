"""The models as functions of their parameters, for frameworks that have no PyTorch module.

A framework brings `Functions`; the parameters keep their names, shapes and layout. So a weight is
(outputs, inputs), as PyTorch has it. A rank's share of a minibatch is rows of one array here:
where these frameworks want as many samples of each rank, some more are added that weigh nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from d5test.case import Array
from d5test.engines.engine import Minibatch, Rule
from d5test.engines.models import GROUPS, HEAD, STRIDES

EPSILON = 1e-5
"""Of `torch.nn.LayerNorm` and `GroupNorm`."""


class Functions(Protocol):
    """What a framework computes with."""

    def linear(self, x: Any, w: Any) -> Any:
        """(..., inputs), (outputs, inputs) to (..., outputs)."""

    def convolved(self, x: Any, w: Any, stride: int) -> Any:
        """(n, inputs, height, width), (outputs, inputs, k, k) to (n, outputs, ...).

        k is odd; around an image are (k - 1) / 2 zeros.
        """

    def means(self, x: Any) -> Any:
        """(n, channels, height, width) to (n, channels)."""

    def gelu(self, x: Any) -> Any:
        """By the error function, not by tanh."""

    def softmax(self, x: Any) -> Any:
        """Along the last axis."""

    def log_softmax(self, x: Any) -> Any:
        """Along the last axis."""

    def without_least(self, x: Any) -> Any:
        """-inf in place of the least, along the last axis."""

    def normalised(self, x: Any) -> Any:
        """(x - mean) / sqrt(variance + `EPSILON`), along the last axis."""

    def rows(self, table: Any, indices: Any) -> Any:
        """(rows, width), (...) to (..., width)."""

    def picked(self, x: Any, indices: Any) -> Any:
        """(..., classes), (...) to (...): the element of each index."""

    def einsum(self, formula: str, x: Any, y: Any) -> Any:
        """As NumPy's, of two arrays."""

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Of one size."""

    def constant(self, value: Array, like: Any) -> Any:
        """In the dtype of `like`."""

    def total(self, x: Any) -> Any:
        """The sum of all elements."""


def outputs(f: Functions, p: Mapping[str, Any], x: Any) -> Any:
    """What `d5test.engines.models` has for these parameters: (n, ...) to (n, ..., classes)."""
    enter = p.get("enter.weight")
    images = enter is not None and len(enter.shape) == 4
    if images:
        y = f.convolved(x, enter, 1)
    else:
        y = _words(f, p, x) if enter is None else f.linear(x, enter)
    for child in dict.fromkeys(name.partition(".")[0] for name in p):
        if f"{child}.attention.out.weight" in p:
            y = y + _attention(f, p, f"{child}.attention", _normalised(f, p, f"{child}.before", y))
            y = y + _pair(f, p, f"{child}.pair", _normalised(f, p, f"{child}.between", y))
        elif f"{child}.gate.weight" in p:
            y = _experts(f, p, child, y)
        elif f"{child}.up.weight" in p:
            y = _pair(f, p, child, y)
        elif f"{child}.near.weight" in p:
            y = _residual(f, p, child, y)
        elif child not in ("enter", "leave"):
            raise NotImplementedError(f"{child} is not written as a function")
    y = f.means(y) if images else y
    return f.linear(y, p["leave.weight"]) + p["leave.bias"]


def weighted_loss(f: Functions, p: Mapping[str, Any], x: Any, y: Any, weight: Any) -> Any:
    """The sum of the cross-entropies of predictions, each times its weight; y, weight (n, ...)."""
    return -f.total(f.picked(f.log_softmax(outputs(f, p, x)), y) * weight)


def _normalised(f: Functions, p: Mapping[str, Any], name: str, x: Any) -> Any:
    return f.normalised(x) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _pair(f: Functions, p: Mapping[str, Any], name: str, x: Any) -> Any:
    y = f.gelu(f.linear(x, p[f"{name}.up.weight"]) + p[f"{name}.up.bias"])
    return f.linear(y, p[f"{name}.down.weight"]) + p[f"{name}.down.bias"]


def _residual(f: Functions, p: Mapping[str, Any], name: str, x: Any) -> Any:
    stride = STRIDES[name]
    y = f.gelu(_groups_normalised(f, p, f"{name}.before", x))
    y = f.convolved(y, p[f"{name}.near.weight"], stride)
    y = f.gelu(_groups_normalised(f, p, f"{name}.between", y))
    y = f.convolved(y, p[f"{name}.far.weight"], 1)
    return f.convolved(x, p[f"{name}.path.weight"], stride) + y


def _groups_normalised(f: Functions, p: Mapping[str, Any], name: str, x: Any) -> Any:
    _, channels, *sides = x.shape
    grouped = f.reshape(x, (-1, GROUPS, channels // GROUPS * prod(sides)))
    weight, bias = (
        f.reshape(p[f"{name}.{kind}"], (channels, 1, 1)) for kind in ("weight", "bias")
    )
    return f.reshape(f.normalised(grouped), (-1, channels, *sides)) * weight + bias


def _words(f: Functions, p: Mapping[str, Any], x: Any) -> Any:
    return f.rows(p["enter.word.weight"], x) + p["enter.place"]


def _experts(f: Functions, p: Mapping[str, Any], name: str, x: Any) -> Any:
    gate = p[f"{name}.gate.weight"]
    weights = f.softmax(f.without_least(f.linear(x, gate)))
    experts = (_pair(f, p, f"{name}.expert.{i}", x) for i in range(gate.shape[0]))
    return sum(weights[..., i : i + 1] * y for i, y in enumerate(experts))


def _attention(f: Functions, p: Mapping[str, Any], name: str, x: Any) -> Any:
    _, length, _ = x.shape
    weights = [p[f"{name}.{which}.weight"] for which in "qkv"]
    heads = weights[0].shape[0] // HEAD
    q, k, v = (f.reshape(f.linear(x, w), (-1, length, heads, HEAD)) for w in weights)
    later = np.where(np.tri(length, dtype=bool), 0.0, -np.inf)
    scores = f.einsum("nqhd,nkhd->nhqk", q, k) * HEAD**-0.5 + f.constant(later, q)
    y = f.einsum("nhqk,nkhd->nqhd", f.softmax(scores), v)
    y = f.reshape(y, (-1, length, heads * HEAD))
    return f.linear(y, p[f"{name}.out.weight"]) + p[f"{name}.out.bias"]


@dataclass(frozen=True)
class Parameters:
    """Those of a PyTorch module.

    values   by name, each once
    aliases  every name under which a module has one, and the name among the values
    """

    values: Mapping[str, Array]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, model: nn.Module) -> Parameters:
        """Of a module in which two others may share one."""
        named = {id(p): name for name, p in model.named_parameters()}
        return cls(
            {name: p.detach().numpy().copy() for name, p in model.named_parameters()},
            {name: named[id(p)] for name, p in model.named_parameters(remove_duplicate=False)},
        )

    def under_all_names(self, p: Mapping[str, Any]) -> dict[str, Any]:
        """What `outputs` takes, of tensors by the names of the values."""
        return {name: p[first] for name, first in self.aliases.items()}


@dataclass(frozen=True)
class Rows:
    """Samples of a joined minibatch, as many of each share, one share after the other.

    x, y    (n, ...)
    weight  as y: 1 over the predictions of the joined minibatch, or 0 where one was added
    """

    x: Array
    y: Array
    weight: Array

    def share(self, number: int, count: int) -> Rows:
        """One of so many."""
        x, y, weight = (np.split(each, count)[number] for each in (self.x, self.y, self.weight))
        return Rows(x, y, weight)


def rows_of(joined: Minibatch, shares: int, parts: int, dtype: str, least: int = 1) -> list[Rows]:
    """What all ranks take in the first, the second, ... part of a step.

    All parts and shares are as long as the longest, and have `least` samples.
    """
    made, own = [], [joined.part(share, shares) for share in range(shares)]
    cut = [[share.part(number, parts) for share in own] for number in range(parts)]
    most = max(least, *(len(part) for each in cut for part in each))
    for each in cut:
        x, y, weight = [], [], []
        for part in each:
            given = part if len(part) else joined
            kept = np.arange(most) % len(given)
            x.append(given.x.numpy()[kept])
            y.append(given.y.numpy()[kept])
            counts = np.zeros(y[-1].shape, dtype)
            counts[: len(part)] = 1 / joined.y.numel()
            weight.append(counts)
        made.append(Rows(*map(np.concatenate, (x, y, weight))))
    return made


@dataclass(frozen=True)
class Update:
    """A step of SGD with momentum, or of AdamW, as PyTorch's optimizers do it.

    All are written in terms of +, *, / and `sqrt`, for arrays of any framework.
    """

    kind: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, rule: Rule) -> Update:
        """What an optimizer of PyTorch does."""
        return cls(rule.kind.__name__, rule.options)

    @property
    def slots(self) -> tuple[str, ...]:
        """What is kept of each parameter, and is zero at first."""
        return ("momentum",) if self.kind == "SGD" else ("mean", "square")

    def corrections(self, step: int) -> tuple[float, ...]:
        """By what AdamW divides its slots in this step, the first of which is 1."""
        return tuple(1 - beta**step for beta in self.options.get("betas", ()))

    def __call__(
        self, p: Any, g: Any, slots: Mapping[str, Any], corrections: Sequence[Any], sqrt: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The next parameter and slots."""
        o = self.options
        if self.kind == "SGD":
            if "weight_decay" in o:
                g = g + o["weight_decay"] * p
            momentum = o["momentum"] * slots["momentum"] + g
            return p - o["lr"] * momentum, {"momentum": momentum}
        beta1, beta2 = o["betas"]
        mean = beta1 * slots["mean"] + (1 - beta1) * g
        square = beta2 * slots["square"] + (1 - beta2) * (g * g)
        first, second = corrections
        move = (mean / first) / (sqrt(square / second) + o["eps"])
        p = p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * move
        return p, {"mean": mean, "square": square}


def as_tensors(values: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """The same numbers, as an engine hands them out."""
    return {name: torch.from_numpy(np.array(value)) for name, value in values.items()}
