"""An update rule of a user's own, with its implementation in a framework, is judged."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import at_night
from tests.training.test_mistakes import python

SUITE = Path(__file__).parents[2] / "suites" / "training"
DOCS = Path(__file__).parents[2] / "docs" / "training.md"
RECIPE = """
from d5test.networks.zoo.small import mlp
from d5test.training.history import TEST_ACCURACY
from d5test.training.recipe import run_recipe
from d5test.training.samplers import ShuffleSampler
FIXED = {"model": mlp, "model_kwargs": {"sizes": (64, 17, 4)}, "dataset": "synthetic",
         "train_sampler": ShuffleSampler, "epochs": 3}
MUTABLE = {"batch_size": 32, "backend": "torch", "optimizer": "./lion.py:Lion",
           "optimizer_kwargs": {"lr": 0.015625}}
METRICS = [(TEST_ACCURACY, 0.9)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
"""


def documented() -> str:
    """The file that the documentation shows."""
    section = DOCS.read_text().partition("## An optimizer of your own")[2]
    block = section[section.index('    """Lion') :].partition("\n\n    pytest suites")[0]
    return "\n".join(line.removeprefix("    ") for line in block.splitlines()) + "\n"


def judged(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(
        folder, "-m", "pytest", SUITE, "--optimizer=./lion.py:Lion", "--examples=10", *words
    )


@pytest.mark.nightly
def test_the_documented_rule_is_judged(tmp_path: Path) -> None:
    (tmp_path / "lion.py").write_text(documented())
    ran = judged(tmp_path, "--backend=torch,numpy,onnxruntime", "-k", "step or trajectory", "-v")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for passed in (
        "test_step[Lion-float32-torch]", "test_step[Lion-float64-numpy]",
        "test_trajectory[Lion-float64-native-torch]",
        "test_trajectory[Lion-float32-reference-torch]",
    ):  # fmt: skip
        assert f"{passed} PASSED" in ran.stdout
    assert "test_trajectory[Lion-float32-native-onnxruntime] SKIPPED" in ran.stdout
    assert "Lion is not implemented in onnxruntime; it has: torch" in ran.stdout


@pytest.mark.nightly
def test_a_wrong_implementation_says_what_it_looks_like(tmp_path: Path) -> None:
    right = 'beta1, beta2 = group["betas"]'
    wrong = documented().replace(right, 'beta2, beta1 = group["betas"]')
    assert wrong != documented()
    (tmp_path / "lion.py").write_text(wrong)
    ran = judged(tmp_path, "--backend=torch", "-k", "step or trajectory", "--dtype=float32")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "looks like  beta1 and beta2 exchanged" in ran.stdout
    assert "native: wrong trajectory on torch" in ran.stdout
    (file,) = (tmp_path / ".d5test" / "reproducers").glob("Lion-step-*.py")
    again = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stdout + again.stderr
    (tmp_path / "lion.py").write_text(documented())
    again = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize(
    "form",
    [
        "by name",
        at_night("imported"),
        at_night("in the recipe"),
    ],
)
def test_a_recipe_has_an_optimizer_of_ones_own(tmp_path: Path, form: str) -> None:
    recipe = RECIPE
    (tmp_path / "lion.py").write_text(documented())
    if form != "by name":
        recipe = recipe.replace('"./lion.py:Lion"', "Lion")
        recipe = (documented() if form == "in the recipe" else "from lion import Lion\n") + recipe
    (tmp_path / "mine.py").write_text(recipe)
    ran = python(tmp_path, "mine.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "mine, seed 1: test accuracy" in ran.stdout
    shutil.rmtree(tmp_path / "stub")  # with what Python compiled
    ran = python(tmp_path, "-m", "pytest", SUITE, "--backend=torch", "--recipe=mine.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_a_rule_that_no_backend_implements_is_refused(tmp_path: Path) -> None:
    """Nothing of a framework would be judged, and the run would pass."""
    text = documented().replace('{"torch": in_torch}', '{"Torch": in_torch}')
    assert text != documented()
    (tmp_path / "lion.py").write_text(text)
    ran = judged(tmp_path, "--backend=torch")
    assert ran.returncode == 4
    (line,) = ran.stderr.strip().splitlines()
    assert "Lion has no implementation in torch, only in: Torch; there is nothing to judge" in line


def test_what_is_no_rule_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "lion.py").write_text("class Lion: pass")
    ran = judged(tmp_path, "--backend=numpy")
    assert ran.returncode == 4
    (line,) = ran.stderr.strip().splitlines()
    assert "optimizer './lion.py:Lion' is not a subclass of d5test.reference.optimizers" in line
