"""Wrong engines of sequence and loss parallelism are found; honest ones are not accused."""

import json
from functools import cache
from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN, under_mpirun

pytestmark = [
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun"),
    pytest.mark.nightly,  # the bars of a transformer take 30 s
]
WRONG = {
    "ActivationsEverywhere": "volume",
    "OneNormWhole": "volume",
    "OwnNorms": "value",
    "NotSummedInBackward": "value",
    "LeaveNotSplit": "placement",
    "ScoresGathered": "volume",
}
"""The kind of the fault of each."""
HONEST = (
    "SequenceParallelism:transformer-sgd", "LossParallelism:transformer-sgd",
    "SequenceParallelism:transformer-uneven", "LossParallelism:transformer-uneven",
)  # fmt: skip
MIXED = (
    "SequenceParallelism:transformer-sgd:dp2,tp2", "LossParallelism:transformer-sgd:dp2,tp2",
    "LossParallelism:transformer-sgd:fsdp2,tp2", "SequenceParallelism:transformer-adamw",
    "LossParallelism:transformer-adamw",
)  # fmt: skip


@cache
def judged(ranks: int) -> dict[str, dict[str, Any]]:
    """What was said of each engine: all are judged in one run."""
    asked = [
        *HONEST,
        *(f"{name}:transformer-sgd" for name in WRONG),
        *(MIXED if ranks == 4 else ()),
    ]
    module = "tests.engines.judged_under_mpi"
    ran = under_mpirun(ranks, module, "planted_sequences", *asked, seconds=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {each["asked"]: each for each in said}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", WRONG)
def test_it_is_found(name: str, ranks: int) -> None:
    fault = judged(ranks)[f"{name}:transformer-sgd"]
    assert fault.get("kind") == WRONG[name], fault


@pytest.mark.parametrize(
    "ranks, asked", [*((2, asked) for asked in HONEST), *((4, asked) for asked in HONEST + MIXED)]
)
def test_what_is_right_is_not_accused(ranks: int, asked: str) -> None:
    said = judged(ranks)[asked]
    assert "kind" not in said, said
    assert 0 < said["distance"] < 0.5
