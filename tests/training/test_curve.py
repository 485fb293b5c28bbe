"""Losses from the same start: honest ones are near, a slightly wrong rate or epsilon is not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from d5test.client.client import InProcessClient
from d5test.training.curve import PAUSE, STEPS, Curve, perceptron
from tests.training.wrong import Fresh, Local


@pytest.fixture(scope="module")
def curve() -> Curve:
    return perceptron()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with InProcessClient("numpy") as opened:
        yield opened


@pytest.mark.parametrize("kind", ["native", "reference"])
def test_honest_losses_are_near(curve: Curve, client: Any, kind: str) -> None:
    found = curve.distance(client, kind)
    assert len(found.ratios) == STEPS
    assert found.right
    assert max(found.ratios) > 0


@pytest.mark.parametrize("kind", ["native", "reference"])
def test_honest_losses_are_the_same_after_a_resume(curve: Curve, client: Any, kind: str) -> None:
    assert curve.distance(client, kind, PAUSE) == curve.distance(client, kind)


def test_a_momentum_that_a_resume_loses_is_found(curve: Curve) -> None:
    client = Local(Fresh)
    assert curve.distance(client).right
    assert curve.distance(client, "native", PAUSE).leaves == PAUSE + 2


@pytest.mark.parametrize("change", [{"lr": 0.1001}, {"momentum": 0.901}, {"weight_decay": 1e-4}])
def test_a_slightly_wrong_hyperparameter_is_not(
    curve: Curve, client: Any, change: dict[str, float]
) -> None:
    wrong = replace(curve, optimizer=curve.optimizer.with_(**change))
    assert wrong.distance(client).leaves in (2, 3)


def test_a_wrong_initial_value_is_not(curve: Curve, client: Any) -> None:
    network = curve.network.copy()
    values = network.fetch(["fc1_w"])["fc1_w"]
    values[20:40] *= 1.001
    network.feed("fc1_w", values)
    assert replace(curve, network=network).distance(client).leaves == 1


def test_batches_in_another_order_are_not(curve: Curve, client: Any) -> None:
    one, two, *rest = curve.batches
    assert replace(curve, batches=(two, one, *rest)).distance(client).leaves == 1
