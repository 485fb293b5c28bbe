"""A network on each of several ranks learns digits, with every distributed optimizer."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from d5test.case import Array
from d5test.client.client import InProcessClient
from d5test.distributed.communicator import Virtual
from d5test.distributed.fleet import Replica
from d5test.distributed.optimizers import CONSISTENT, DISTRIBUTED, ELASTIC, FEDERATED, GROWING
from d5test.networks.executor import Executor
from d5test.networks.zoo import mlp
from d5test.reference.collectives import Schedule
from d5test.reference.optimizers import Momentum

RANKS, SAMPLES, STEPS = 4, 12, 60
datasets = pytest.importorskip("sklearn.datasets")


@cache
def digits() -> tuple[Array, Array]:
    x, labels = datasets.load_digits(return_X_y=True)
    order = np.random.Generator(np.random.Philox(5)).permutation(len(x))
    images = (x[order] / 16 - 0.5).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, labels[order].astype(np.int64)


def replica() -> Replica:
    return Replica(Executor(InProcessClient("numpy"), mlp((64, 24, 10), seed=3)), "loss")


def minibatch(rank: int, step: int) -> Mapping[str, Array]:
    """Of the first 1200 digits: ranks and steps take samples in turn."""
    images, labels = digits()
    at = ((step * RANKS + rank) * SAMPLES + np.arange(SAMPLES)) % 1200
    return {"x": images[at], "labels": labels[at]}


def steps_of(name: str) -> int:
    """Twice as many where a spring holds workers back.

    Four times where half of them rest, or a step comes to have four minibatches.
    """
    return STEPS * (4 if name in {**FEDERATED, **GROWING} else 2 if name in ELASTIC else 1)


def trained(name: str) -> tuple[tuple[Array, ...], list[Replica]]:
    replicas = [replica() for _ in range(RANKS)]
    steps = DISTRIBUTED[name](Momentum()).steps_a_round(RANKS)
    optimizer = DISTRIBUTED[name](Momentum(lr=0.05 / steps, momentum=0.75))

    def program(rank: int, size: int, w: Array) -> Schedule:
        gradient = replicas[rank].gradient(lambda step: minibatch(rank, step))
        return optimizer.train(rank, size, w, gradient, steps_of(name))

    room = np.zeros(optimizer.room(RANKS), np.float32)
    start = np.concatenate([replicas[0].parameters(), room])
    reduced = Virtual().run(program, [start] * RANKS, 7, exposed=optimizer.exposed)
    return tuple(w[: len(w) - len(room)] for w in reduced.results), replicas


def errors(w: Array) -> float:
    """The share of the last digits, which are not trained on, that are taken for others."""
    images, labels = digits()
    judged = replica()
    judged.put(w)
    outputs = judged.executor.inference({"x": images[1200:], "labels": labels[1200:]})
    scores = next(y for name, y in outputs.items() if name != "loss")
    return float(np.mean(scores.argmax(axis=1) != labels[1200:]))


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_it_learns(name: str) -> None:
    results, replicas = trained(name)
    assert errors(replica().parameters()) > 0.5
    assert errors(results[0]) < 0.25
    for rank in DISTRIBUTED[name](Momentum()).workers(RANKS):
        losses = list(replicas[rank].losses.values())
        took_part = len(losses) / steps_of(name)
        assert 0.3 < took_part < 0.7 if name in FEDERATED else took_part == 1
        assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 2


@pytest.mark.parametrize("name", CONSISTENT)
def test_replicas_stay_equal(name: str) -> None:
    results, _ = trained(name)
    assert len({w.tobytes() for w in results}) == 1


def test_parameters_come_back_as_they_were_put() -> None:
    one = replica()
    w = one.parameters()
    moved = (w + np.arange(w.size) / w.size).astype(np.float32)
    one.put(moved)
    assert np.array_equal(one.parameters(), moved)
    assert not np.array_equal(moved, w)
