"""A training step with the reference's rule on torch's tensors over one with `torch.optim`.

The worker's own training runs in this process: forward, backward and the update of one batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from d5test.backends.inprocess import InProcess
from d5test.networks.network import Network
from d5test.networks.zoo import resnet18
from d5test.networks.zoo.resnet import cifar
from d5test.reference.optimizers import Adam, Momentum, Optimizer
from d5test.training.session import Batch, Session
from tests.budget.measure import AGAIN, OURS, THEIRS, Clock, Line, in_turn, ratio

RATIO = 1.03
RULES = (Momentum(lr=0.001), Adam())


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
            times = in_turn(arms, rounds=101, seconds=seconds)
            yield ratio(f"training step of {what}, {rule.name}: reference / native", times, RATIO)


def batch(n: int, channels: int, size: int) -> Batch:
    """Random images and labels."""
    random = np.random.default_rng(0)
    x = random.standard_normal((n, channels, size, size)).astype(np.float32)
    return {"x": x, "labels": random.integers(0, 10, n)}


def step(network: Network, rule: Optimizer, given: Batch, kind: str) -> Clock:
    """CPU seconds of one training step, in a session of its own."""
    session = Session(InProcess("torch"), network, rule, kind)

    def timed() -> float:
        start = time.process_time()
        session.train([given])
        return time.process_time() - start

    return timed
