"""A run learns, tells what happens, and goes on from a checkpoint as if it had never stopped."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from d5test.client.inprocess import InProcessClient
from d5test.networks.zoo.mlp import mlp
from d5test.reference.optimizers import Adam, Momentum, Optimizer
from d5test.training.checkpoint import ResumeFault
from d5test.training.datasets import Dataset, synthetic
from d5test.training.progress import ProgressBar
from d5test.training.samplers import Indices, SequentialSampler, ShuffleSampler
from d5test.training.session import Session
from d5test.training.trainer import Event, Trainer

DATA: Dataset = synthetic(train=150, test=40)
SAMPLER = ShuffleSampler(150, 32, seed=5)


@pytest.fixture(params=["numpy", "torch"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with InProcessClient(request.param) as opened:
        yield opened


def trainer(
    client: Any, optimizer: Optimizer | None = None, sampler: Any = SAMPLER, **options: Any
) -> Trainer:
    rule = Adam(lr=0.01) if optimizer is None else optimizer
    return Trainer(Session(client, mlp((64, 16, 4)), rule), DATA, sampler, **options)


def bits(made: Trainer) -> dict[str, bytes]:
    snapshot = made.session.snapshot()
    slots = {f"{n}/{i}": s for n, kept in snapshot.slots.items() for i, s in enumerate(kept)}
    return {name: x.tobytes() for name, x in {**snapshot.parameters, **slots}.items()}


def test_a_run_learns_and_measures(client: Any) -> None:
    events: list[Event] = []
    history = trainer(client, listeners=[events.append]).run(epochs=6)
    assert history.final_accuracy > 0.9
    assert history.losses[-1] < history.losses[0] / 2
    assert history.trained == 6 * 150
    assert len(history.losses) == 6 * 5
    counts = Counter(event.what for event in events)
    assert counts == {"run": 1, "epoch": 6, "step": 30, "tested": 6, "end": 1}
    assert history.time_to(history.test_accuracy[0]) == history.tested_at[0] < history.elapsed
    assert history.time_to(1.01) is None
    assert {"data", "transfer", "compute", "evaluation"} == set(history.spent)


@pytest.mark.parametrize("rule", [Adam(lr=0.01), Momentum(lr=0.05)])
def test_a_run_goes_on_from_before_its_first_step(client: Any, rule: Optimizer) -> None:
    made = trainer(client, rule)
    first = DATA.train.batch(SAMPLER.epoch(0)[0])
    made.session.evaluate([first])
    start = made.session.snapshot()
    losses = made.train_steps(3)
    made.session.restore(start, like=first)
    again = made.session.train([DATA.train.batch(order) for order in SAMPLER.epoch(0)[:3]])
    assert [passed.loss for passed in again] == losses


@pytest.mark.parametrize("rule", [Adam(lr=0.01), Momentum(lr=0.05)])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_ends_with_the_same_bits(
    client: Any, rule: Optimizer, stop: int, tmp_path: Path
) -> None:
    whole = trainer(client, rule)
    whole.run(epochs=3)
    file = tmp_path / "run.npz"
    begun = trainer(client, rule, checkpoint=file)
    begun.run(epochs=1)
    begun.train_steps(stop)
    begun.save()
    begun.session.close()
    resumed = trainer(client, rule)
    resumed.resume(file)
    history = resumed.run(epochs=3)
    assert history.losses == whole.history.losses
    assert history.training_accuracy == whole.history.training_accuracy
    assert history.test_accuracy == whole.history.test_accuracy
    assert bits(resumed) == bits(whole)


class Restless(ShuffleSampler):
    """Its order depends on how often it was asked: a generator that is not stored."""

    def epoch(self, number: int) -> list[Indices]:
        ORDERS.append(number)
        return ShuffleSampler(self.samples, self.batch, seed=len(ORDERS)).epoch(number)


ORDERS: list[int] = []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "run.npz"
    with InProcessClient("numpy") as client:
        made = trainer(client, checkpoint=file, every=2)
        made.run(epochs=1)
        made.train_steps(2)
        made.save()
    return file


DIFFERENT = {
    "optimizer: the run began with Adam": {"optimizer": Adam(lr=0.02)},
    "sampler: the run began with ShuffleSampler": {"sampler": SequentialSampler(150, 32)},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_run_is_refused(saved: Path, what: str) -> None:
    with InProcessClient("numpy") as client, pytest.raises(ResumeFault, match=what):
        trainer(client, **DIFFERENT[what]).resume(saved)


def test_another_order_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    with InProcessClient("numpy") as client:
        made = trainer(client, sampler=Restless(150, 32), checkpoint=file)
        made.run(epochs=1)
        with pytest.raises(ResumeFault, match="epoch 0 is shuffled differently than before"):
            trainer(client, sampler=Restless(150, 32)).resume(file)


def test_a_broken_checkpoint_is_one_line(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:1000])
    with (
        InProcessClient("numpy") as client,
        pytest.raises(ResumeFault, match="no checkpoint") as caught,
    ):
        trainer(client).resume(saved)
    assert "\n" not in str(caught.value)


def test_the_bar_shows_loss_and_accuracy() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with InProcessClient("numpy") as client, ProgressBar(console) as bar:
        trainer(client, listeners=[bar]).run(epochs=2)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "epoch 2 of 2" in shown
    assert "5/5" in shown
    assert "tested 100.00%" in shown or "tested 9" in shown
