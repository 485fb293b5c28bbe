"""Recipes are run as they stand; what is fixed cannot be changed in silence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from d5test.client.client import InProcessClient
from d5test.metric import Metric
from d5test.names import located
from d5test.networks.zoo.resnet import cifar
from d5test.networks.zoo.small import mlp
from d5test.reference.optimizers import Adam
from d5test.training.history import TEST_ACCURACY, TRAINING_TIME
from d5test.training.recipe import REGISTER, BadRecipe, Recipe, broken, load, record, train
from d5test.training.samplers import (
    Indices,
    SamplingFault,
    SequentialSampler,
    ShuffleSampler,
)

FIXED: dict[str, Any] = {
    "model": mlp,
    "model_kwargs": {"sizes": (64, 16, 4)},
    "dataset": "synthetic",
    "dataset_kwargs": {"train": 150, "test": 40},
    "train_sampler": ShuffleSampler,
    "epochs": 3,
    "seeds": (1, 2),
}
MUTABLE: dict[str, Any] = {
    "batch_size": 32, "backend": "numpy", "optimizer": Adam, "optimizer_kwargs": {"lr": 0.01},
}  # fmt: skip
METRICS = [(TEST_ACCURACY, 0.75), (TRAINING_TIME, 60.0)]
RECIPES = Path(__file__).parents[2] / "suites" / "training" / "recipes"


def recipe(**fixed: Any) -> Recipe:
    return Recipe.of("small", {**FIXED, **fixed}, MUTABLE, METRICS)


def test_a_recipe_is_run_and_recorded(tmp_path: Path) -> None:
    made, file = recipe(), tmp_path / "results" / "small.json"
    dataset = made.dataset()
    with InProcessClient("numpy") as client:
        for seed in (1, 2):
            run = train(made, client, seed, dataset)
            assert not run.broken
            assert run.values[TEST_ACCURACY.name] == run.history.final_accuracy
            record(made, client.about, dataset, [run], file)
        again = train(made, client, 2, dataset)
    assert again.history.losses == run.history.losses
    entries = json.loads(file.read_text())
    assert [entry["seeds"] for entry in entries] == [[1], [2]]
    assert entries[0]["fixed"] == made.digest()
    assert entries[0]["dataset"] == dataset.digest
    assert entries[0]["backend"]["packages"]["numpy"]
    assert entries[0]["mutable"]["optimizer"] == "d5test.reference.optimizers.Adam"
    losses = [entry["runs"][0]["history"]["losses"] for entry in entries]
    assert losses[0] != losses[1]


def test_bounds_hold_in_their_direction() -> None:
    error, range_ = Metric("error", "1"), Metric("found", "1", better="higher")
    made = Recipe.of("b", FIXED, MUTABLE, [(TEST_ACCURACY, 0.9), (error, 2.0), (range_, 1.0, 3.0)])

    def judged(*values: float | None) -> list[str]:
        names = (TEST_ACCURACY.name, error.name, range_.name)
        return broken(made, dict(zip(names, values, strict=True)))

    assert judged(0.9, 2.0, 3.0) == []
    assert judged(0.899, 2.0, 1.0) == ["test accuracy: 0.899 1, at least 0.9 is wanted"]
    assert judged(1.0, 2.001, 1.0) == ["error: 2.001 1, at most 2 is wanted"]
    assert judged(1.0, 0.0, 3.001) == ["found: 3.001 1, at most 3 is wanted"]
    assert judged(1.0, 0.0, 0.999) == ["found: 0.999 1, at least 1 is wanted"]
    assert judged(float("nan"), None, 2.0) == [
        "test accuracy: nan 1, at least 0.9 is wanted",
        "error: never reached, at most 2 is wanted",
    ]


WRONG = {
    "FIXED lacks epochs": ({**FIXED, "epochs": None}, MUTABLE, METRICS),
    "MUTABLE has no part 'epochs'; it is a fixed part": (FIXED, {**MUTABLE, "epochs": 9}, METRICS),
    "FIXED has no part 'batch_size'; it is a mutable part": (
        {**FIXED, "batch_size": 8}, MUTABLE, METRICS,
    ),
    "FIXED has no part 'colour'; known: model, model_kwargs, dataset,": (
        {**FIXED, "colour": 1}, MUTABLE, METRICS,
    ),
    "FIXED has no part 'epoch'; did you mean epochs?": ({**FIXED, "epoch": 1}, MUTABLE, METRICS),
    "model_kwargs: mlp has no 'size'; did you mean sizes?": (
        {**FIXED, "model_kwargs": {"size": (64, 4)}}, MUTABLE, METRICS,
    ),
    "model_kwargs: mlp has no 'seed'; the seeds of a recipe stand in 'seeds'": (
        {**FIXED, "model_kwargs": {"sizes": (64, 4), "seed": 3}}, MUTABLE, METRICS,
    ),
    "model: cifar: missing a required argument: 'depth'": (
        {**FIXED, "model": cifar, "model_kwargs": {}}, MUTABLE, METRICS,
    ),
    "unknown dataset 'digit': did you mean digits?": (
        {**FIXED, "dataset": "digit"}, MUTABLE, METRICS,
    ),
    "dataset_kwargs: synthetic has no 'rows'; known: train, test, classes,": (
        {**FIXED, "dataset_kwargs": {"rows": 9}}, MUTABLE, METRICS,
    ),
    "optimizer_kwargs: Adam has no 'learning_rate'; known: lr, weight_decay,": (
        FIXED, {**MUTABLE, "optimizer_kwargs": {"learning_rate": 0.1}}, METRICS,
    ),
    "optimizer is a class or a function, not 3": (
        FIXED, {**MUTABLE, "optimizer": 3}, METRICS,
    ),
    "unknown optimizer 'Adm': did you mean Adam": (
        FIXED, {**MUTABLE, "optimizer": "Adm"}, METRICS,
    ),
    "optimizer './none.py:Lion' cannot be loaded: FileNotFoundError: there is no file": (
        FIXED, {**MUTABLE, "optimizer": "./none.py:Lion", "optimizer_kwargs": {}}, METRICS,
    ),
    "executor_kwargs: WorkerClient has no 'thread'; did you mean threads?": (
        FIXED, {**MUTABLE, "executor_kwargs": {"thread": 2}}, METRICS,
    ),
    "there is no optimizer_kind 'nativ'; did you mean native?": (
        FIXED, {**MUTABLE, "optimizer_kind": "nativ"}, METRICS,
    ),
    "batch_size is a positive integer, not 0": (FIXED, {**MUTABLE, "batch_size": 0}, METRICS),
    "seeds is a list of integers, not 1": ({**FIXED, "seeds": 1}, MUTABLE, METRICS),
    "METRICS has": (FIXED, MUTABLE, [("accuracy", 0.9)]),
    r"METRICS has \(metric, bound\)": (FIXED, MUTABLE, (TEST_ACCURACY, 0.9)),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_part_that_does_not_belong_is_named(what: str) -> None:
    with pytest.raises(BadRecipe, match=what.replace("?", r"\?")) as raised:
        Recipe.of("small", *WRONG[what])
    assert str(raised.value).startswith("small: ")
    assert "\n" not in str(raised.value)


def test_what_a_model_refuses_is_said_of_the_recipe() -> None:
    made = recipe(model=cifar, model_kwargs={"depth": 9})
    with pytest.raises(BadRecipe, match="small: model: a CIFAR ResNet has 6 n"):
        made.network(1)


@pytest.mark.parametrize(
    "fixed", [{"epochs": 4}, {"seeds": (1,)}, {"model_kwargs": {"sizes": (64, 17, 4)}}]
)
def test_changed_fixed_parts_are_refused(fixed: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / REGISTER).write_text(json.dumps({"small": recipe().digest()}))
    recipe().require_registered(tmp_path)
    with pytest.raises(BadRecipe, match="With other fixed parts it is another recipe"):
        recipe(**fixed).require_registered(tmp_path)


class Resumed(ShuffleSampler):
    """Another order for each object."""

    def epoch(self, number: int) -> list[Indices]:
        return ShuffleSampler(self.samples, self.batch, id(self)).epoch(number)


class Still(ShuffleSampler):
    """The order of the first epoch, again and again."""

    def epoch(self, number: int) -> list[Indices]:
        return super().epoch(0)


class Unmade(ShuffleSampler):
    def __init__(self, samples: int, batch: int, seed: int) -> None:
        raise TypeError("not today")


SAMPLERS = {
    Resumed: "Resumed: made anew, epoch 2 is in another order",
    Still: "Still: epoch 1 is in the order of epoch 0",
    Unmade: "Unmade: TypeError: not today",
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_sampler_of_a_recipe_is_examined(sampler: Any) -> None:
    made = recipe(train_sampler=sampler)
    with InProcessClient("numpy") as client, pytest.raises(SamplingFault, match=SAMPLERS[sampler]):
        train(made, client, 1, made.dataset())


def test_a_sampler_that_does_not_shuffle_may_say_so() -> None:
    made = recipe(train_sampler=lambda samples, batch, seed: SequentialSampler(samples, batch))
    with InProcessClient("numpy") as client:
        assert train(made, client, 1, made.dataset()).history.losses


def test_the_recipes_here_are_registered() -> None:
    registered = json.loads((RECIPES / REGISTER).read_text())
    found = {path.stem: load(path).digest() for path in RECIPES.glob("*.py")}
    assert found == registered
    assert {"digits", "cifar10"} <= set(found)


SCRIPT = """
from d5test.networks.zoo.small import mlp
from d5test.reference.optimizers import Adam
from d5test.training.history import TEST_ACCURACY
from d5test.training.recipe import run_recipe
from d5test.training.samplers import ShuffleSampler
FIXED = {"model": mlp, "model_kwargs": {"sizes": (64, 8, 4)}, "dataset": "synthetic",
         "train_sampler": ShuffleSampler, "epochs": 1}
MUTABLE = {"batch_size": 64, "backend": "numpy", "optimizer": Adam}
METRICS = [(TEST_ACCURACY, %s)]
run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
"""


@pytest.mark.parametrize(("bound", "status"), [("0.0", 0), ("1.1", 1)])
def test_a_recipe_is_a_script(tmp_path: Path, bound: str, status: int) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT % bound)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert "mine, seed 1: test accuracy" in done.stdout
    assert ("at least 1.1 is wanted" in done.stdout) == bool(status)
    (entry,) = json.loads((tmp_path / ".d5test" / "recipes" / "mine-numpy.json").read_text())
    assert entry["runs"][0]["right"] == (not status)


def test_a_dataset_of_ones_own_is_a_function_or_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from d5test.training.datasets import synthetic\n"
        "def halved(train=64):\n    return synthetic(train // 2, 8)\n"
    )
    for form in (f"{file}:halved", located("dataset", f"{file}:halved")):
        made = Recipe.of(
            "small", {**FIXED, "dataset": form, "dataset_kwargs": {}}, MUTABLE, METRICS
        )
        assert len(made.dataset().train) == 32
        with pytest.raises(BadRecipe, match="dataset_kwargs: halved has no 'rows'; known: train"):
            Recipe.of(
                "small",
                {**FIXED, "dataset": form, "dataset_kwargs": {"rows": 3}},
                MUTABLE,
                METRICS,
            )
