"""Engines of jax that are wrong on purpose are found, and named; honest ones are not accused."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN, under_mpirun

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
pytest.importorskip("jax")
EVERYWHERE = "the plan was not applied: each rank has all of it"
FOUND = {
    "PmeanOnTop:mlp-sgd": ("value", "a mean over W - 1 = 1 ranks"),  # a sum, that is
    "NothingSharded:mlp-sgd:fsdp2": ("placement", EVERYWHERE),
    "LastUnevenShardLost:mlp-uneven:dp2": ("value", ""),
}
MORE_FOUND = {
    "PmeanOnTop:mlp-adamw": ("value", "a sum instead of a mean"),
    "MeanOverTooFew:mlp-sgd": ("value", "a mean over W - 1 = 3 ranks"),
    "NothingSummed:mlp-sgd": ("value", ""),
    "NothingSharded:mlp-sgd:tp4": ("placement", EVERYWHERE),
    "StateEverywhere:mlp-sgd:fsdp4": ("placement", EVERYWHERE),
    "OtherSeed:mlp-sgd:dp4": ("value", ""),
    "PaddingCounted:mlp-uneven": ("value", ""),
    "PmeanOnTop:residual-sgd": ("value", "a sum instead of a mean"),
}
HONEST = ("ShardMap:mlp-sgd",)
MORE_HONEST = (
    "ShardMapUnchecked:mlp-uneven", "ShardMap:mlp-accumulated",
    "OptimizationBarrier:mlp-adamw:fsdp4", "Sharding:mlp-clipped:dp2,fsdp2",
    "Sharding:mlp-tied:fsdp4", "Sharding:mlp-uneven:dp4", "Sharding:mlp-sgd:dp2,tp2",
    "Sharding:mlp-adamw:fsdp2,tp2", "Sharding:transformer-sgd:fsdp2,tp2",
    "Sharding:residual-sgd:fsdp4",
)  # fmt: skip


@cache
def judged(ranks: int, module: str, *asked: str) -> dict[str, dict[str, Any]]:
    """What was said of each engine of a module: all are judged in one run."""
    ran = under_mpirun(ranks, "tests.engines.judged_under_mpi", module, *asked)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {each["asked"]: each for each in found}


@pytest.fixture
def on_two() -> Callable[[str], dict[str, Any]]:
    return lambda asked: judged(2, "planted_jax", *FOUND, *HONEST)[asked]


@pytest.fixture
def on_four() -> Callable[[str], dict[str, Any]]:
    """In runs of which each is short enough for a busy machine."""
    return lambda asked: judged(
        4, "planted_jax", *(MORE_FOUND if asked in MORE_FOUND else MORE_HONEST)
    )[asked]


def see(fault: dict[str, Any], kind: str, likely: str) -> None:
    assert fault.get("kind") == kind, fault
    assert likely in fault["details"].get("looks like", "")
    assert bool(likely) == ("looks like" in fault["details"])


def right(said: dict[str, Any]) -> None:
    assert "kind" not in said, said
    assert 0 < said["distance"] < 0.5


@pytest.mark.parametrize("asked", FOUND)
def test_it_is_found(on_two: Callable[[str], dict[str, Any]], asked: str) -> None:
    see(on_two(asked), *FOUND[asked])


@pytest.mark.nightly
@pytest.mark.parametrize("asked", MORE_FOUND)
def test_it_is_found_on_four(on_four: Callable[[str], dict[str, Any]], asked: str) -> None:
    see(on_four(asked), *MORE_FOUND[asked])


@pytest.mark.parametrize("asked", HONEST)
def test_what_is_right_is_not_accused(on_two: Callable[[str], dict[str, Any]], asked: str) -> None:
    right(on_two(asked))


@pytest.mark.nightly
@pytest.mark.parametrize("asked", MORE_HONEST)
def test_nor_is_it_on_four(on_four: Callable[[str], dict[str, Any]], asked: str) -> None:
    right(on_four(asked))
