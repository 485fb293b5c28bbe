"""A run learns, tells what happens, and goes on from a checkpoint as if it had never stopped."""

import errno
import io
import json
import os
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import pytest
from rich.console import Console

from d5test.client.client import InProcessClient
from d5test.networks.zoo.small import mlp
from d5test.reference.optimizers import Adam, Momentum, Optimizer
from d5test.training.datasets import Dataset, synthetic
from d5test.training.samplers import Indices, SequentialSampler, ShuffleSampler
from d5test.training.session import Session
from d5test.training.trainer import Checkpoint, ProgressBar, ResumeFault, Trainer, TrainingEvent

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
    events: list[TrainingEvent] = []
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


def members(path: Path) -> dict[str, bytes]:
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, held: dict[str, bytes], how: int = ZIP_STORED) -> None:
    with ZipFile(path, "w", how) as archive:
        for name, content in held.items():
            archive.writestr(name, content)


def headed(**changed: Any) -> Callable[[dict[str, bytes]], None]:
    """Other entries of the head."""

    def change(held: dict[str, bytes]) -> None:
        head = json.loads(np.load(io.BytesIO(held["head.npy"])).tobytes()) | changed
        file = io.BytesIO()
        np.save(file, np.frombuffer(json.dumps(head).encode(), np.uint8))
        held["head.npy"] = file.getvalue()

    return change


def long_array(held: dict[str, bytes]) -> None:
    """A header that announces 2^40 numbers: nothing is given memory for them."""
    name = next(name for name in held if name.startswith("w/"))
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    )
    held[name] = file.getvalue() + bytes(64)


DAMAGED: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no head": (lambda held: held.pop("head.npy"), "no checkpoint: 'head'"),
    "a long array": (long_array, "an array of float32 .* is damaged"),
    "epochs without end": (headed(epoch=10**9), "epochs were seen until epoch 1000000000"),
    "a batch before the first": (headed(batch=-1), "batch is -1, not a count"),
    "no history": (headed(history=None), "no checkpoint"),
    "a history of text": (headed(history={"losses": ["x"]}), "holds what is no number"),
    "slots that are not there": (headed(slots={"w": 9}), "no checkpoint: 's/w/0'"),
    "another format": (headed(format=2), "format 2, this is 1"),
    "no objects": (headed(made_of=[1]), "no checkpoint"),
    "fewer parameters": (
        lambda held: held.pop(next(n for n in held if n.startswith("w/"))),
        "its parameters are not those of the network",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_checkpoint_is_one_line(saved: Path, what: str) -> None:
    change, words = DAMAGED[what]
    held = members(saved)
    change(held)
    rewritten(saved, held)
    tracemalloc.start()
    with InProcessClient("numpy") as client, pytest.raises(ResumeFault, match=words) as caught:
        trainer(client).resume(saved)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{saved}: ")
    assert peak < 64 << 20


def test_a_checkpoint_that_swells_is_refused(saved: Path) -> None:
    rewritten(saved, {**members(saved), "w/more.npy": bytes(64 << 20)}, ZIP_DEFLATED)
    tracemalloc.start()
    with pytest.raises(ResumeFault, match="would unpack to more than the file"):
        Checkpoint.load(saved)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_disk_that_is_full_leaves_the_checkpoint_of_before(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with InProcessClient("numpy") as client:
        made = trainer(client, checkpoint=saved, every=2)
        with pytest.raises(OSError, match="No space left"):
            made.run(epochs=1)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_the_bar_shows_loss_and_accuracy() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with InProcessClient("numpy") as client, ProgressBar(console) as bar:
        trainer(client, listeners=[bar]).run(epochs=2)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "epoch 2 of 2" in shown
    assert "5/5" in shown
    assert "tested 100.00%" in shown or "tested 9" in shown
