"""What cannot be run is one line: a recipe with a mistake, data whose package is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "suites" / "training"
NEEDED = "the digits come with scikit-learn: pip install 'd5test[training]'"
RECIPE = """
from d5test.networks.zoo.small import mlp
from d5test.reference.optimizers import Adam
from d5test.training.history import TEST_ACCURACY
from d5test.training.recipe import run_recipe
from d5test.training.samplers import ShuffleSampler
FIXED = {"model": mlp, "model_kwargs": {"sizes": (64, 8, 4)}, "dataset": "synthetic",
         "train_sampler": ShuffleSampler, "epochs": 1}
MUTABLE = {"batch_size": 64, "backend": "numpy", "optimizer": Adam,
           "optimizer_kwargs": {"lr": 0.1}}
METRICS = [(TEST_ACCURACY, 0.0)]
if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
"""
MISTAKES = {
    "optimizer_kwargs: Adam has no 'learning_rate'; known: lr,": ('"lr"', '"learning_rate"'),
    "FIXED has no part 'epoch'; did you mean epochs? known: model,": ('"epochs"', '"epoch"'),
    "model_kwargs: mlp has no 'size'; did you mean sizes?": ('"sizes"', '"size"'),
}


def python(folder: Path, *words: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """Python in a folder, where a package may be missing."""
    (folder / "stub").mkdir()
    hidden = f"import sys\nsys.modules[{without!r}] = None\n" if without else ""
    (folder / "stub" / "sitecustomize.py").write_text(hidden)
    paths = os.pathsep.join([str(folder / "stub"), str(ROOT)])
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=folder, capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
    )  # fmt: skip


def suite(folder: Path, *words: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """A run of level 2 on the references."""
    return python(folder, "-m", "pytest", SUITE, "--backend=numpy", *words, without=without)


def test_without_the_digits_tests_are_skipped_by_reason(tmp_path: Path) -> None:
    ran = suite(tmp_path, "--optimizer=GradientDescent", "--examples=1", without="sklearn")
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "2 skipped" in ran.stdout.splitlines()[-1]
    assert f"\n      2  {NEEDED}" in ran.stdout[ran.stdout.index("not judged, by reason") :]


def test_a_recipe_on_missing_data_that_is_named_is_one_line(tmp_path: Path) -> None:
    ran = suite(tmp_path, "--recipe=digits", without="sklearn")
    assert ran.returncode == 4, ran.stdout
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith(f"ERROR: digits: {NEEDED}")
    assert not ran.stdout


@pytest.mark.parametrize("name", ["digits", "cifar10"])
def test_a_script_without_its_data_is_one_line(tmp_path: Path, name: str) -> None:
    ran = python(tmp_path, SUITE / "recipes" / f"{name}.py", without="sklearn")
    assert ran.returncode == 1
    (line,) = ran.stdout.splitlines()
    missing = {"digits": NEEDED, "cifar10": "cifar-10-batches-bin/data_batch_1.bin: No such file"}
    assert line.startswith(f"{name}: {missing[name]}")
    assert not ran.stderr


@pytest.mark.parametrize("what", MISTAKES)
@pytest.mark.parametrize("status", [1, 4], ids=["script", "pytest"])
def test_a_mistake_in_a_recipe_is_one_line(tmp_path: Path, what: str, status: int) -> None:
    wrong = RECIPE.replace(*MISTAKES[what])
    assert wrong != RECIPE
    (tmp_path / "mine.py").write_text(wrong)
    if status == 4:
        ran = suite(tmp_path, "--recipe=mine.py")
        told, silent = ran.stderr.strip(), ran.stdout
    else:
        ran = python(tmp_path, "mine.py")
        told, silent = ran.stdout, ran.stderr
    assert ran.returncode == status, ran.stdout + ran.stderr
    (line,) = told.splitlines()
    assert line.removeprefix("ERROR: ").startswith(f"mine: {what}")
    assert not silent


DROPPING = """
class Dropping(ShuffleSampler):
    def epoch(self, number):
        return super().epoch(number)[:-1]
"""


@pytest.mark.parametrize("status", ["script", "pytest"])
def test_a_sampler_that_drops_the_last_batch_is_one_line(tmp_path: Path, status: str) -> None:
    wrong = RECIPE.replace("\nFIXED", f"{DROPPING}FIXED").replace(
        '"train_sampler": ShuffleSampler', '"train_sampler": Dropping'
    )
    wrong = wrong.replace('"synthetic"', '"synthetic", "dataset_kwargs": {"train": 150}')
    (tmp_path / "mine.py").write_text(wrong)
    told = "mine: Dropping: epoch 0: the last batch is dropped: 22 of 150 samples are never seen"
    if status == "pytest":
        ran = suite(tmp_path, "--recipe=mine.py", "-k", "test_recipe")
    else:
        ran = python(tmp_path, "mine.py")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"\n{told}\n" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "samplers.py" not in ran.stdout + ran.stderr


def test_a_section_that_is_misspelt_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE.replace("FIXED = ", "FIXD = "))
    ran = suite(tmp_path, "--recipe=mine.py")
    assert ran.returncode == 4, ran.stdout + ran.stderr
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith("ERROR: mine: there is no FIXED; it has FIXD: did you mean FIXED?")


def collected(folder: Path, *words: str) -> list[str]:
    ran = suite(folder, "--collect-only", "-q", *words)
    return [line.partition("::")[2] for line in ran.stdout.splitlines() if "::" in line]


def test_a_recipe_that_is_named_is_what_is_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE)
    assert collected(tmp_path, "--recipe=mine.py") == [
        "test_curve[native-mine-numpy]",
        "test_curve[reference-mine-numpy]",
        "test_recipe[mine-numpy]",
    ]


def test_optimizers_named_beside_a_recipe_are_run_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE)
    found = collected(tmp_path, "--recipe=mine.py", "--optimizer=Adam", "--dtype=float32")
    assert sum("mine" in name for name in found) == 3
    assert [name for name in found if "mine" not in name] == [
        "test_step[Adam-float32-numpy]",
        "test_trajectory[Adam-float32-native-numpy]",
        "test_trajectory[Adam-float32-reference-numpy]",
    ]
