"""A training step with the reference's rule on torch's tensors over one with `torch.optim`.

The worker's own training runs in this process: forward, backward and the update of one batch. Each
step is measured whole, and its update within it: forward and backward are the same code in both
arms, and their noise is thirty times the difference that is looked for. The bound is kept on steps
of which only the updates differ; whole steps are shown beside them.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from d5test.backends.torch import Torch
from d5test.client.client import InProcessClient
from d5test.networks.network import Network
from d5test.networks.zoo import resnet18
from d5test.networks.zoo.resnet import cifar
from d5test.reference.optimizers import Adam, Momentum, Optimizer
from d5test.training.session import Batch, Session
from tests.budget.measure import AGAIN, OURS, THEIRS, Clock, Line, in_turn, ratio

RATIO = 1.03
RULES = (Momentum(lr=0.001), Adam())
UPDATES: list[float] = []
"""CPU seconds of the updates so far."""


class Watched(Torch):
    """Torch, the CPU seconds of each update of parameters put down in `UPDATES`."""

    updaters: ClassVar[Mapping[str, Any]] = {}


def watched(updater: type) -> type:
    """An updater that is timed."""

    class Timed(updater):
        def step(self, grads: Any) -> None:
            start = time.process_time()
            super().step(grads)
            UPDATES.append(time.process_time() - start)

    return Timed


Watched.updaters = {kind: watched(updater) for kind, updater in Torch.updaters.items()}


def lines() -> Iterator[Line]:
    """The digits recipe's step, and ResNet-18's with its eleven million parameters."""
    import torch

    torch.set_num_threads(1)
    settings = (
        ("ResNet-8 at batch 64, 8 x 8", cifar(8, channels=1), batch(64, 1, 8), 20),
        ("ResNet-18 at batch 8, 224 x 224", resnet18(), batch(8, 3, 224), 90),
    )
    for what, network, given, seconds in settings:
        for rule in RULES:
            arms = {
                OURS: step(network, rule, given, "reference"),
                THEIRS: step(network, rule, given, "native"),
                AGAIN: step(network, rule, given, "native"),
            }
            spent: dict[str, list[float]] = {name: [] for name in arms}
            clocks = {name: noted(clock, spent[name]) for name, clock in arms.items()}
            times = in_turn(clocks, rounds=101, seconds=seconds)
            yield ratio(f"whole training step of {what}, {rule.name}: ours / native", times, None)
            updates = {name: np.array(spent[name][-len(times[name]) :]) for name in times}
            rest = np.median([times[name] - updates[name] for name in times])
            steps = {name: rest + updates[name] for name in times}
            yield ratio(f"training step of {what}, {rule.name}: reference / native", steps, RATIO)


def noted(clock: Clock, spent: list[float]) -> Clock:
    """The clock; what the update within took is appended."""

    def timed() -> float:
        seconds = clock()
        spent.append(UPDATES[-1])
        return seconds

    return timed


def batch(n: int, channels: int, size: int) -> Batch:
    """Random images and labels."""
    random = np.random.default_rng(0)
    x = random.standard_normal((n, channels, size, size)).astype(np.float32)
    return {"x": x, "labels": random.integers(0, 10, n)}


def step(network: Network, rule: Optimizer, given: Batch, kind: str) -> Clock:
    """CPU seconds of one training step, in a session of its own."""
    session = Session(InProcessClient(f"{__name__}:Watched"), network, rule, kind)

    def timed() -> float:
        start = time.process_time()
        session.train([given])
        return time.process_time() - start

    return timed
