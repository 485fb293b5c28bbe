"""The run on one process: in float64, with a rounding error at each primitive, or a mistake.

In float64 and as it is, it is what an engine should arrive at. With errors (`Noise`) it is a
member of the ensemble whose spread is how far honest arithmetic strays: each primitive of the
forward and the backward pass and each in-place operation of the optimizer is off. With a mistake,
it is what an engine must not be taken for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import frexp, inf, ldexp
from typing import Any

import numpy as np
import torch
from torch import nn

from d5test.case import Array
from d5test.engines.buffers import Buffers, Statistics, Way, mistaken, way_of
from d5test.engines.cases import HALF
from d5test.engines.checkpoints import Load, Saved, lapses, restore, saved
from d5test.engines.engine import TINY, Minibatch, mean_loss
from d5test.engines.models import Dropout
from d5test.engines.training import Training
from d5test.modules.montecarlo import MonteCarlo
from d5test.numerics.arithmetic import Arithmetic, classes, format_of
from d5test.numerics.perturbed import deviates
from d5test.numerics.sampled import off

Gradient = dict[str, torch.Tensor]
"""By name; parameters that no sample uses are not there."""
Combine = Callable[[Sequence[Gradient]], Gradient]
"""What a step makes of the ranks' gradients: of the mean loss of the joined minibatch, each scaled
so that their mean is that of all samples."""
Trajectory = tuple[dict[str, Array], ...]
"""After each step the parameters and buffers, by name, and under `LOSS` and `NORM` those of the
step."""
LOSS, NORM = "loss", "norm of the gradient"
COARSE = "gradients rounded to bfloat16"
DOUBLE = 53
"""Bits of float64."""
SUMS = 24
"""Bits of the sums of an engine that computes in 16."""


def mean(gradients: Sequence[Gradient]) -> Gradient:
    """What is right."""
    return scaled(gradients, 1 / len(gradients))


def scaled(gradients: Sequence[Gradient], factor: float) -> Gradient:
    """The sum of the gradients, times a factor."""
    return {
        name: factor * sum(g[name] for g in gradients if name in g)
        for name in dict.fromkeys(chain.from_iterable(gradients))
    }


def norm_of(gradient: Gradient) -> torch.Tensor:
    """That of all parameters as one vector."""
    return torch.stack([(g * g).sum() for g in gradient.values()]).sum().sqrt()


def clipped(gradient: Gradient, most: float) -> Gradient:
    """A gradient of at most this norm."""
    if most == inf:
        return gradient
    factor = (most / (norm_of(gradient) + TINY)).clamp(max=1.0)
    return {name: factor * g for name, g in gradient.items()}


@dataclass(frozen=True)
class Noise:
    """The errors of one member of an ensemble.

    arithmetic  of the optimizer, and of all else where nothing is said of it
    rounding    the format in which gradients are on their way
    computes    that of the forward and the backward pass, to which parameters and inputs are
                rounded before it
    alone       whether gradients are rounded on their way, and nothing else is
    """

    arithmetic: Arithmetic
    member: int = 0
    rounding: str = ""
    computes: str = ""
    alone: bool = False

    @property
    def apart(self) -> bool:
        """Whether a rank's gradient has errors of its own, before the mean is taken."""
        return bool(self.rounding or self.computes)

    @contextmanager
    def made(self) -> Iterator[None]:
        """Within: each primitive of PyTorch is off."""
        if self.alone:
            yield
            return
        factor = _visible(self.arithmetic.primitive.precision)
        with MonteCarlo(partial(off, self.arithmetic, self.member, factor)):
            yield

    def cast(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Numbers that are rounded to a format; integers stay what they are."""
        if not x.is_floating_point():
            return x
        value, to = x.detach().numpy(), format_of(name)
        error = _visible(to.precision) * to.u * value * deviates(value, value, self.member)
        return torch.from_numpy(value + error)

    @contextmanager
    def passing(self, model: nn.Module, batch: Minibatch) -> Iterator[Minibatch]:
        """Within: a forward and a backward pass. The minibatch as it enters."""
        if not self.computes:
            with self.made():
                yield batch
            return
        exact = [(p, p.detach().clone()) for p in model.parameters()]
        with torch.no_grad():
            for p, value in exact:
                p.copy_(self.cast(value, self.computes))
        passes = replace(self, arithmetic=arithmetic_of(self.computes))
        with passes.made():
            yield replace(batch, x=self.cast(batch.x, self.computes))
        with torch.no_grad():
            for p, value in exact:
                p.copy_(value)

    def summed(self, gradients: Sequence[Gradient]) -> Gradient:
        """The mean of gradients that are rounded, and rounded after each addition."""
        rounded = partial(self.cast, name=self.rounding or self.arithmetic.primitive.name)
        total = {}
        for name in dict.fromkeys(chain.from_iterable(gradients)):
            first, *others = (g[name] for g in gradients if name in g)
            part = rounded(first)
            for other in others:
                part = rounded(part + rounded(other))
            total[name] = part
        return scaled([total], 1 / len(gradients))


def _visible(precision: int) -> float:
    """By how much errors of such a format are made larger, so that float64 has room for them.

    One of half a unit in the last place of a number just above 1 is rounded away in float64: a
    normalisation's weights, which begin at 1, would have no spread.
    """
    return 2.0 if precision >= DOUBLE else 1.0


def steps(
    training: Training,
    combine: Combine | None = None,
    noise: Noise | None = None,
    load: Load | None = None,
    way: Way | None = None,
) -> Iterator[dict[str, Array]]:
    """The run on the joined minibatches; or on the ranks' shares, whose gradients are combined.

    After half of the steps it may go on from what a mistaken checkpoint brings back; and buffers
    may come about in a mistaken way. A step is made when it is asked for.
    """
    most = training.clip  # found by a run without errors
    model = training.model(torch.float64)
    own = dict(model.named_parameters())
    optimizer = training.rule(own.values(), foreach=False, **_unfused(training))
    there = list[Saved]()
    way = way or way_of(training)
    statistics = Statistics(training, way, model) if way else None
    for number, batch in enumerate(training.batches(torch.float64)):
        with _in_float64():
            if load is not None and number <= HALF:
                there.append(saved(own, optimizer))
                if number == HALF:
                    restore(load(there), own, optimizer)
            loss, gradient = _asked(training, model, batch, combine, noise, statistics)
            with noise.made() if noise else nullcontext():
                norm = norm_of(gradient)
                taken = clipped(gradient, most)
                for name, p in own.items():
                    p.grad = taken.get(name)
                optimizer.step()
                if noise and training.averages:
                    _average(own.values(), training.ranks)
            buffers = statistics.named() if statistics else {}
            every = {**own, **buffers}
            after = {name: p.detach().double().numpy().copy() for name, p in every.items()}
        yield {LOSS: np.asarray(loss), NORM: np.asarray(float(norm)), **after}


def followed(training: Training, combine: Combine | None = None, **kinds: Any) -> Trajectory:
    """All steps of a run: see `steps`."""
    return tuple(steps(training, combine, **kinds))


def unclipped(training: Training) -> Training:
    """The same without a largest norm."""
    return replace(training, case=replace(training.case, clip=inf))


def between(training: Training) -> float:
    """A threshold that clips the gradient in some steps, and not in all."""
    norms = [float(step[NORM]) for step in steps(unclipped(training))]
    mantissa, exponent = frexp((min(norms) + max(norms)) / 2)
    return ldexp(round(mantissa * 16) / 16, exponent)


def _asked(
    training: Training, model: nn.Module, batch: Minibatch, combine: Combine | None,
    noise: Noise | None, statistics: Statistics | None,
) -> tuple[float, Gradient]:  # fmt: skip
    """The loss and the gradient of a step. Buffers are moved."""
    apart = noise is not None and noise.apart
    if statistics is None and combine is None and not apart:
        with noise.made() if noise else nullcontext():
            return _gradient(model, _outputs(model, batch), batch, 1.0)
    ranks, each = training.ranks, []
    losses, following = 0.0, list[Buffers]()
    for rank in range(ranks):
        with noise.passing(model, batch) if noise else nullcontext(batch) as entering:
            share = entering.part(rank, ranks)
            y = (
                statistics.outputs(entering, rank, following)
                if statistics
                else _outputs(model, share)
            )
            loss, gradient = _gradient(model, y, share, len(share) * ranks / len(batch))
        each.append(gradient)
        losses += loss
    if statistics:
        statistics.end(following)
    joined = combine or (noise.summed if noise else mean)
    return losses / ranks, joined(each)


def _outputs(model: nn.Module, batch: Minibatch) -> torch.Tensor:
    """The model's. What its dropout leaves is what the ranks have left."""
    modules = (module for module in model.modules() if isinstance(module, Dropout))
    for module, factors in zip(modules, batch.factors, strict=True):
        module.factors = factors
    y: torch.Tensor = model(batch.x)
    return y


def _gradient(
    model: nn.Module, y: torch.Tensor, batch: Minibatch, weight: float
) -> tuple[float, Gradient]:
    """The weighted mean loss of outputs, and its gradient."""
    loss = mean_loss(y, batch.y)
    if weight != 1:
        loss = weight * loss
    own = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(own.values()), allow_unused=True)
    return loss.item(), {n: g for n, g in zip(own, found, strict=True) if g is not None}


def _average(parameters: Iterable[torch.Tensor], ranks: int) -> None:
    """Make each parameter the mean of `ranks` copies of it, added up one by one."""
    with torch.no_grad():
        for p in parameters:
            part = p / ranks
            total = part
            for _ in range(ranks - 1):
                total = total + part
            p.copy_(total)


def _unfused(training: Training) -> dict[str, Any]:
    return {"fused": False} if training.case.optimizer in ("SGD", "AdamW") else {}


@contextmanager
def _in_float64() -> Iterator[None]:
    """Within: what an optimizer counts its steps in is in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def arithmetic_of(dtype: str) -> Arithmetic:
    """Of float32 or float64 the only class; of 16 bits that whose sums run in float32."""
    *_, arithmetic = (each for each in classes(dtype) if each.sums.precision >= SUMS)
    return arithmetic


def mistakes(training: Training) -> Mapping[str, Callable[[], Iterable[Mapping[str, Array]]]]:
    """The usual ones, by name: the steps of each."""
    loads = lapses(training) if training.case.resumed else {}
    free = {"the gradient is not clipped": partial(steps, unclipped(training))}
    return {
        **{
            name: partial(steps, training, combine)
            for name, combine in combinations(training).items()
        },
        **(free if training.clip < inf else {}),
        **{name: partial(steps, training, load=load) for name, load in loads.items()},
        **{name: partial(steps, training, way=way) for name, way in mistaken(training).items()},
    }


def combinations(training: Training) -> Mapping[str, Combine]:
    """How a step combines the ranks' gradients, mistakenly."""
    ranks, names = training.ranks, list(training.shapes)
    parts = range(ranks)

    def one(rank: int) -> Combine:
        return lambda g: g[rank]

    def without(rank: int) -> Combine:
        return lambda g: scaled([*g[:rank], *g[rank + 1 :]], 1 / ranks)

    def lost(name: str) -> Combine:
        def combine(g: Sequence[Gradient]) -> Gradient:
            of_first = {n: x for n, x in g[0].items() if n == name}
            return {n: x for n, x in mean(g).items() if n != name} | of_first

        return combine

    def coarse(g: Sequence[Gradient]) -> Gradient:
        return mean([{name: x.bfloat16().double() for name, x in each.items()} for each in g])

    def of_users(g: Sequence[Gradient]) -> Gradient:
        return {n: x * ranks / sum(n in each for each in g) for n, x in mean(g).items()}

    def zeros(g: Sequence[Gradient]) -> Gradient:
        shapes = training.shapes.items()
        return {n: torch.zeros(s, dtype=torch.float64) for n, s in shapes} | mean(g)

    named: dict[str, Combine] = {
        f"a mean over W - 1 = {ranks - 1} ranks": lambda g: scaled(g, 1 / (ranks - 1)),
        f"a mean over W + 1 = {ranks + 1} ranks": lambda g: scaled(g, 1 / (ranks + 1)),
        "a sum instead of a mean": lambda g: scaled(g, 1.0),
        **{
            f"the gradient of part {rank} of the samples left out": without(rank) for rank in parts
        },
        "the last rank has rank 0's samples": lambda g: mean([*g[:-1], g[0]]),
        **{f"rank {rank}'s gradient alone": one(rank) for rank in parts},
        **{f"a lost bucket: {name} has rank 0's gradient alone": lost(name) for name in names},
        COARSE: coarse,
    }
    if training.clip < inf:
        named["each rank's gradient clipped by its own norm"] = lambda g: mean(
            [clipped(each, training.clip) for each in g]
        )
    if training.case.model == "branched":
        named["a mean over the ranks that use a parameter"] = of_users
        named["a gradient of zero for what no rank uses"] = zeros
    return named
