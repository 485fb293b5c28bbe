"""Checkpoints that are wrong on purpose are found, and named; honest ones are not accused."""

import json
from functools import cache
from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN, under_mpirun
from tests.engines.test_planted import suite

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
RANKS = 4
STATE = "the optimizer's state is not loaded"
WRONG = {
    "NothingLoaded:mlp-resumed-sgd": ("value", "nothing is loaded"),
    "ModelAlone:mlp-resumed-sgd": ("value", STATE),
    "ModelAlone:mlp-resumed-adamw": ("value", STATE),
    "OptimizerAlone:mlp-resumed-sgd": ("value", ""),
    "OneMomentumLost:mlp-resumed-sgd": (
        "value",
        "momentum_buffer of second.down.bias is not loaded",
    ),
    "OneSecondMomentLost:mlp-resumed-adamw": (
        "value",
        "exp_avg_sq of second.down.bias is not loaded",
    ),
    "OneParameterLost:mlp-resumed-sgd": ("value", "first.up.weight is not loaded"),
    "Transposed:mlp-resumed-sgd": ("value", ""),
    "StepsLost:mlp-resumed-adamw": ("value", "step is not loaded"),
    "NeighboursShard:mlp-resumed-sgd:fsdp4:fsdp4": ("value", ""),
    "StepOld:mlp-resumed-sgd": ("value", "the checkpoint is a step old"),
    "SavedInBfloat16:mlp-resumed-sgd": ("value", ""),
    "OwnState:mlp-resumed-adamw": ("value", ""),
    "FirstStageAlone:mlp-resumed-adamw": ("value", ""),
    "ShardedAgain:mlp-resumed-sgd": ("placement", ""),
}
"""Engine, case, meshes; the kind of the fault, and what it is said to look like."""
HONEST = (
    "Ddp:mlp-resumed-sgd", "Zero:mlp-resumed-adamw", "Fsdp2:mlp-resumed-adamw",
    "Fsdp2:mlp-resumed-sgd:dp2,fsdp2:fsdp4", "TensorParallel:mlp-resumed-sgd",
    "TensorParallel:mlp-resumed-adamw:fsdp4:tp4",
    "TensorParallel:mlp-resumed-adamw:fsdp2,tp2:dp2,tp2", "Pipeline:mlp-resumed-adamw",
    "FileByHand:mlp-resumed-adamw", "Fsdp2:mlp-sgd:dp4",
)  # fmt: skip
ON_TWO = (
    "Ddp:mlp-resumed-adamw", "Zero:mlp-resumed-sgd", "Fsdp2:mlp-resumed-sgd",
    "TensorParallel:mlp-resumed-adamw", "Pipeline:mlp-resumed-sgd",
)  # fmt: skip


@cache
def judged(ranks: int, *asked: str) -> dict[str, dict[str, Any]]:
    """What was said of each engine: all are judged in one run."""
    words = ("tests.engines.judged_under_mpi", "planted_checkpoints", *asked)
    ran = under_mpirun(ranks, *words, seconds=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {each["asked"]: each for each in found}


@pytest.mark.nightly
@pytest.mark.parametrize("asked", WRONG)
def test_it_is_found(asked: str) -> None:
    (kind, likely), fault = WRONG[asked], judged(RANKS, *WRONG, *HONEST)[asked]
    assert fault.get("kind") == kind, fault
    assert fault["details"].get("looks like", "") == likely
    if kind == "value":
        assert fault["details"]["step"] == "3 of 4"


@pytest.mark.nightly
@pytest.mark.parametrize("asked", HONEST)
def test_what_is_right_is_not_accused(asked: str) -> None:
    said = judged(RANKS, *WRONG, *HONEST)[asked]
    assert "kind" not in said, said
    assert 0 < said["distance"] < 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("asked", ON_TWO)
def test_nor_on_two_ranks(asked: str) -> None:
    said = judged(2, *ON_TWO)[asked]
    assert "kind" not in said, said
    assert 0 < said["distance"] < 0.5


@pytest.mark.nightly
def test_an_engine_without_checkpoints_is_skipped() -> None:
    words = ("--engine=tests.engines.planted:ByHand", "-k", "mlp-resumed-sgd", "-rs")
    ran = suite(*words, "--dtype=float32", ranks=2)
    assert ran.returncode == 6, ran.stdout + ran.stderr  # nothing was judged
    assert "ByHand writes no checkpoint" in ran.stdout


@pytest.mark.nightly
def test_a_message_says_how_to_repeat_it_on_both_meshes() -> None:
    words = ("--engine=tests.engines.planted_checkpoints:ModelAlone", "-k", "mlp-resumed-sgd")
    meshes = ("--mesh=fsdp2", "--resume-mesh=dp2")
    ran = suite(*words, *meshes, "--dtype=float32", ranks=2)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "mesh fsdp2, then dp2" in ran.stdout
    assert "--mesh=fsdp2 --resume-mesh=dp2" in ran.stdout
    assert STATE in ran.stdout


def test_a_mistyped_mesh_is_one_line_that_names_its_option() -> None:
    ran = suite("--resume-mesh=qp2")
    assert ran.returncode == 4
    assert "unknown axis of a mesh 'qp'" in ran.stderr
    ran = suite("--resume-mesh=2")
    assert ran.returncode == 4
    assert "--resume-mesh: expected an axis and its size" in ran.stderr
