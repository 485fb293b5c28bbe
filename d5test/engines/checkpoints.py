"""What a checkpoint has to bring back, and the usual mistakes of one, in the sequential run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import ceil

import torch

from d5test.engines.cases import SLOTS
from d5test.engines.training import Training

ITSELF = ""
"""The slot of a parameter."""
Saved = dict[tuple[str, str], torch.Tensor]
"""Each parameter, under its name and `ITSELF`, and the optimizer's state of it, under its name and
the slot's."""
Load = Callable[[Sequence[Saved]], Saved]
"""What is loaded of what there was before the first step and after each: the last, if right."""


def saved(parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> Saved:
    """Copies of all that a checkpoint has."""
    return {
        (name, slot): value.detach().clone()
        for name, p in parameters.items()
        for slot, value in ((ITSELF, p), *optimizer.state.get(p, {}).items())
    }


def restore(
    loaded: Saved, parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Put back, in place, what `saved` gave."""
    with torch.no_grad():
        for (name, slot), value in loaded.items():
            if slot == ITSELF:
                parameters[name].copy_(value)
            else:
                optimizer.state[parameters[name]][slot] = value.clone()


def lapses(training: Training) -> Mapping[str, Load]:
    """The usual mistakes, by name. An initial state is zero."""
    names, slots = list(training.shapes), SLOTS[training.case.optimizer]
    decay = dict(training.case.options).get("weight_decay", 0.0)

    def lost(of: Iterable[str], which: Iterable[str]) -> Load:
        keys = [*product(of, which)]

        def load(there: Sequence[Saved]) -> Saved:
            first, last = there[0], there[-1]
            there_is = [k for k in keys if k in last]
            return {**last, **{k: first.get(k, torch.zeros_like(last[k])) for k in there_is}}

        return load

    def off(name: str, slot: str) -> Load:
        key, rows = (name, slot), ceil(training.shapes[name][0] / training.ranks)
        return lambda there: {**there[-1], key: there[-1][key].roll(rows, 0)}

    def coarse(there: Sequence[Saved]) -> Saved:
        return {key: value.bfloat16().double() for key, value in there[-1].items()}

    def counted(there: Sequence[Saved]) -> Saved:
        shapes = {name: training.shapes[name] for name in training.unused}
        of_one = [
            ((name, slot), torch.ones(()) if slot == "step" else torch.zeros(shape).double())
            for (name, shape), slot in product(shapes.items(), slots)
        ]
        return {**dict(of_one), **there[-1]}

    def decayed(there: Sequence[Saved]) -> Saved:
        of_unused = {name: there[-1][name, ITSELF] for name in training.unused}
        return {**{(n, "momentum_buffer"): decay * p for n, p in of_unused.items()}, **there[-1]}

    every = {
        "nothing is loaded": lost(names, (ITSELF, *slots)),
        "the optimizer's state is not loaded": lost(names, slots),
        "the checkpoint is a step old": lambda there: there[-2],
        "what is loaded is rounded to bfloat16": coarse,
    }
    if len(slots) > 1:
        every |= {f"{slot} is not loaded": lost(names, (slot,)) for slot in slots}
    if training.unused and "step" in slots:
        every["a step is counted of what no rank used"] = counted
    if training.unused and "momentum_buffer" in slots and decay:
        every["what no rank used has the momentum of a decay"] = decayed
    for name, slot in product(names, (ITSELF, *slots)):
        what = f"{slot} of {name}" if slot else name
        used = name not in training.unused
        if used:
            every[f"{what} is not loaded"] = lost((name,), (slot,))
        if slot == ITSELF or (used and slot != "step"):
            every[f"rows of {what} are a shard off"] = off(name, slot)
    return every
