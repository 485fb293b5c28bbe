"""Batch normalisation is tested with statistics of training data, whoever is tested together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.client.client import InProcessClient
from d5test.networks.graph import Value
from d5test.networks.network import Network
from d5test.networks.specialise import specialised
from d5test.networks.zoo.built import Draft
from d5test.networks.zoo.small import mlp
from d5test.reference.operators.elementwise import Relu
from d5test.reference.operators.movement import Flatten
from d5test.reference.operators.normalisation import BatchNormalization
from d5test.reference.optimizers import Momentum
from d5test.training.datasets import Dataset, synthetic
from d5test.training.samplers import ShuffleSampler
from d5test.training.session import (
    Batch,
    Session,
    evaluating,
    learned,
    measuring,
    normalising,
    together,
)
from d5test.training.trainer import Trainer

DATA: Dataset = synthetic(train=600, test=40)
RULE = Momentum(lr=0.05)


def normalised() -> Network:
    """The images normalised by channel, and again in a layer of 5 numbers each."""
    draft = Draft(
        "normalised", 3, x=Value("float32", ("n", 1, 8, 8)), labels=Value("int64", ("n",))
    )
    h = _normalised(draft, "first", "x", 1)
    h = draft.linear("wide", draft.add("flat", Flatten(), h), 64, 5)
    h = draft.add("relu", Relu(), _normalised(draft, "second", h, 5))
    scores = draft.linear("scores", h, 5, 10)
    return draft.finished(scores, draft.loss(scores, "labels"))


def _normalised(draft: Draft, name: str, x: str, c: int) -> str:
    start = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}
    held = [draft.array(f"{name}_{part}", np.full(c, value)) for part, value in start.items()]
    op = BatchNormalization(training_mode=1)
    return draft.add_several(name, op, x, *held, outputs=3)[0]


@pytest.fixture(params=["numpy", "torch"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with InProcessClient(request.param) as client:
        yield Session(client, normalised(), RULE)


def batch(*samples: int) -> Batch:
    return DATA.train.batch(np.array(samples))


def test_moments_of_batches_are_those_of_their_union() -> None:
    x = np.random.default_rng(0).normal(3, 2, (11, 4))
    parts = [(len(p), [p.mean(0), p.var(0)]) for p in (x[:2], x[2:7], x[7:])]
    mean, variance = together(parts)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-14)
    np.testing.assert_allclose(variance, x.var(0), rtol=1e-13)


def test_a_variance_is_never_negative() -> None:
    constant = [np.full(1, 0.1), np.zeros(1)]
    assert together([(3, constant), (7, constant)])[1] == 0


def test_what_is_measured_is_not_learned() -> None:
    graph = normalised().graph
    assert [node.name for node in normalising(graph)] == ["first", "second"]
    assert set(graph.parameters) - set(learned(graph)) == {
        "first_mean", "first_variance", "second_mean", "second_variance",
    }  # fmt: skip


def test_a_network_without_it_stays_what_it_is() -> None:
    graph = specialised(mlp((64, 5, 10)).graph, {"x": (3, 1, 8, 8), "labels": (3,)})
    assert evaluating(graph) == graph
    assert measuring(graph) == graph


def test_the_statistics_are_those_of_the_samples(session: Session) -> None:
    session.measure([batch(0, 1, 2), batch(*range(3, 20))])
    held = session.snapshot().parameters
    x = DATA.train.batch(np.arange(20))["x"].astype(np.float64)
    np.testing.assert_allclose(held["first_mean"], x.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(held["first_variance"], x.var((0, 2, 3)), rtol=1e-6)


def test_an_answer_does_not_depend_on_who_else_is_tested(session: Session) -> None:
    session.train([batch(*range(k, k + 32)) for k in (0, 32)])
    session.measure([batch(*range(100))])
    alone = [session.evaluate([batch(k)])[0].loss for k in range(20)]
    (both,) = session.evaluate([batch(*range(20))])
    assert both.loss == pytest.approx(np.mean(alone), rel=1e-5)
    (first,) = session.evaluate([batch(0, 1)])
    assert first.loss == pytest.approx(np.mean(alone[:2]), rel=1e-5)


def test_testing_changes_nothing_that_is_learned(session: Session) -> None:
    session.train([batch(*range(32))])
    before = session.snapshot().parameters
    session.measure([batch(*range(100))])
    session.evaluate([batch(0)])
    after = session.snapshot().parameters
    for name in learned(session.network.graph):
        np.testing.assert_array_equal(before[name], after[name])


def test_it_may_be_tested_before_it_was_trained(session: Session) -> None:
    session.measure([batch(*range(64))])
    (passed,) = session.evaluate([batch(*range(64))])
    (trained,) = session.train([batch(*range(64))])
    assert passed.loss == pytest.approx(trained.loss, rel=1e-5)


def test_a_resumed_run_is_tested_alike(tmp_path: Path) -> None:
    def trainer(client: Any, **more: Any) -> Trainer:
        made = Session(client, normalised(), RULE)
        return Trainer(made, DATA, ShuffleSampler(len(DATA.train), 64, seed=1), **more)

    file = tmp_path / "run.npz"
    with InProcessClient("torch") as client:
        whole = trainer(client).run(epochs=3)
        trainer(client, checkpoint=file).run(epochs=1)
        resumed = trainer(client)
        resumed.resume(file)
        history = resumed.run(epochs=3)
    assert history.losses == whole.losses
    assert history.test_accuracy == whole.test_accuracy
    assert whole.final_accuracy > whole.test_accuracy[0] / 2 > 0.1
