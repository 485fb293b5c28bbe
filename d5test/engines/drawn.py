"""Trainings that are drawn: of other sizes, values and options than those of `CASES`.

Sizes lie where ranks divide unevenly: fewer rows than ranks, one more, twice as many; shares of
one sample. What is drawn depends on a number, a seed and the ranks, and not on the engine: so
engines that can do the same are judged on the same trainings, and all ranks draw alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any, TypeVar

import torch
from torch import nn

from d5test.engines.cases import BETWEEN, Case, Model, Sizes
from d5test.engines.models import NAMES, Experts
from d5test.engines.sequential import followed
from d5test.engines.training import Training

T = TypeVar("T")
Pick = Callable[[Sequence[T]], T]
"""Chooses among values: by a seed, or as Hypothesis draws."""
TRIES = 100
"""Trainings that are drawn until one is such as an engine can do and a case has to be."""
APART = 2.0**-12
"""The least distance between the scores of two experts of which one is left out: 4,096 roundings
of float32 of a score near 1."""
MODELS: Sequence[Model] = (
    "mlp", "mlp", "transformer", "transformer", "branched", "experts", "residual", "batchnorm",
)  # fmt: skip
LEAST: Mapping[Model, int] = {"batchnorm": 3, "branched": 2}
"""Samples of a rank: of two all are 1 or -1, once normalised; half of them take the branch."""
RATES: Mapping[str, Sequence[tuple[tuple[str, Any], ...]]] = {
    "SGD": [
        (("lr", lr), ("momentum", m), *decay)
        for lr in (0.125, 0.0625)
        for m in (0.5, 0.75, 0.875)
        for decay in ((), (("weight_decay", 2.0**-4),))
    ],
    "AdamW": [
        (("lr", lr), ("betas", betas), ("weight_decay", decay))
        for lr in (2.0**-6, 2.0**-7)
        for betas in ((0.875, 0.984375), (0.75, 0.9375))
        for decay in (2.0**-7, 2.0**-4)
    ],
}
"""Options of the optimizers, in numbers that no dtype rounds."""


def one(name: str, ranks: int, pick: Pick[Any]) -> Case:
    """A case for so many ranks, whose gradients are not clipped yet."""
    model = pick(MODELS)
    near = [size for size in (ranks - 1, ranks, ranks + 1, 2 * ranks, 2 * ranks + 1) if size > 1]
    uneven = pick((False, False, True))
    own = uneven + pick(range(LEAST.get(model, 1), 6))
    tied = model == "mlp" and pick((False, False, True))
    costly = model in ("transformer", "experts")
    deepest = 2 if costly else len(NAMES)  # for as many stages of a pipeline as can be
    sizes = Sizes(
        depth=pick(pick((range(1 + tied, deepest + 1), (deepest,)))),
        inputs=pick(range(2, 10)),
        width=pick(pick(([size for size in near if size > 3] or [4], range(4, 20)))),
        hidden=pick(pick((near, (12, 24, 36), range(2, 40)))),
        classes=pick(pick((near, range(2, 12)))),
        words=pick(pick((near, range(3, 14)))),
        length=pick(range(2, 8)),
        heads=pick((1, 2, 3, 4, 6, 12)),
        experts=pick((3, 4, 5)),
        channels=pick((2, 4, 6, 8)),
        side=pick(range(4, 9)),
        own=own,
    )
    optimizer = pick(("SGD", "SGD", "AdamW"))
    # of running statistics it is not said whose a checkpoint has; a share is normalised as one
    own_statistics = model == "batchnorm"
    parts = [n for n in (1, 1, 2, 3) if n <= (1 if own_statistics else own - uneven)]
    return Case(
        name,
        model,
        optimizer,
        sizes,
        pick(RATES[optimizer]),
        seed=pick(range(1, 2**16)),
        accumulate=pick(parts),
        tied=tied,
        uneven=uneven,
        resumed=not own_statistics and pick((False, False, False, True)),
    )


def meshes(axes: Sequence[str], ranks: int) -> list[dict[str, int]]:
    """All meshes of so many ranks along some of these axes, at least two ranks along each.

    >>> meshes(("dp", "tp"), 4)
    [{'dp': 4}, {'tp': 4}, {'dp': 2, 'tp': 2}]
    """
    made = [{axis: ranks} for axis in axes]
    for place, axis in enumerate(axes):
        for size in (n for n in range(2, ranks) if ranks % n == 0):
            made += [{axis: size, **rest} for rest in meshes(axes[place + 1 :], ranks // size)]
    return made


def trainings(number: int, dtype: str, ranks: int, seed: int) -> Iterator[Case]:
    """What may be the training of this number: an engine takes the first that it can do."""
    for attempt in range(TRIES):
        chance = random.Random(f"{number} {attempt} {dtype} {ranks} {seed}")
        case = one(f"drawn-{number}", ranks, chance.choice)
        clips = chance.random() < 0.25
        yield replace(case, clip=BETWEEN) if clips else case


def ranks_of(number: int, seed: int) -> int:
    """How many ranks the training of this number has, where they can be drawn, too."""
    return random.Random(f"ranks {number} {seed}").choice((2, 3, 4))


def drawn_mesh(
    axes: Sequence[str], along: str, number: int, ranks: int, seed: int
) -> dict[str, int]:
    """That of the training of this number, for an engine with these axes. It needs `along`."""
    fit = [mesh for mesh in meshes(axes, ranks) if not along or along in mesh]
    return random.Random(f"{number} {ranks} {seed}").choice(fit)


def experts_are_certain(training: Training) -> bool:
    """Whether no expert is left out by so little that a rounding error may choose another one."""
    with _gaps() as least:
        followed(training)
    return min(least, default=inf) > APART


@contextmanager
def _gaps() -> Iterator[list[float]]:
    """Within: the distances of the lowest two scores, sample by sample, of each mixture."""
    least: list[float] = []

    def hook(module: nn.Module, inputs: tuple[torch.Tensor], _: torch.Tensor) -> None:
        if isinstance(module, Experts):
            lowest = module.gate(*inputs).detach().sort(-1).values
            least.append(float((lowest[..., 1] - lowest[..., 0]).min()))

    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        yield least
    finally:
        handle.remove()
