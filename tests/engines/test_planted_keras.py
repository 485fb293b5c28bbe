"""Engines of Keras that are wrong on purpose are found, and named; honest ones are right."""

from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_planted_jax import EVERYWHERE, judged, right, see

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun"),
]
pytest.importorskip("keras")
pytest.importorskip("jax")
FOUND = {
    "MeanOfOwn:mlp-sgd": ("value", "a mean over W - 1 = 1 ranks"),  # a sum, that is
    "KeysOfNoPath:mlp-sgd:tp2": ("placement", EVERYWHERE),
}
MORE_FOUND = {
    "MeanOverTooFew:mlp-sgd": ("value", "a mean over W - 1 = 3 ranks"),
    "MeanOfOwn:mlp-adamw": ("value", "a sum instead of a mean"),
    "LastRankLost:mlp-sgd": ("value", "the gradient of part 3 of the samples left out"),
    "NothingDistributed:mlp-sgd": ("value", ""),
    "KeysOfNoPath:mlp-sgd:dp2,tp2": ("placement", EVERYWHERE),
    "StateEverywhere:mlp-sgd:tp4": ("placement", EVERYWHERE),
}
HONEST = ("DataParallel:mlp-sgd", "ModelParallel:mlp-sgd:tp2")
MORE_HONEST = (
    "DataParallel:mlp-adamw", "DataParallel:mlp-accumulated", "DataParallel:mlp-uneven",
    "MeanByKeras:mlp-sgd", "ModelParallel:mlp-tied:dp2,tp2", "ModelParallel:mlp-adamw:tp4",
    "ModelParallel:transformer-adamw:dp2,tp2",
)  # fmt: skip


def said(ranks: int, asked: str, *others: Any) -> dict[str, Any]:
    return judged(ranks, "planted_keras", *others)[asked]


@pytest.mark.parametrize("asked", FOUND)
def test_it_is_found(asked: str) -> None:
    see(said(2, asked, *FOUND, *HONEST), *FOUND[asked])


@pytest.mark.parametrize("asked", HONEST)
def test_what_is_right_is_not_accused(asked: str) -> None:
    right(said(2, asked, *FOUND, *HONEST))


@pytest.mark.parametrize("asked", MORE_FOUND)
def test_it_is_found_on_four(asked: str) -> None:
    see(said(4, asked, *MORE_FOUND), *MORE_FOUND[asked])


@pytest.mark.parametrize("asked", MORE_HONEST)
def test_nor_is_it_accused_on_four(asked: str) -> None:
    right(said(4, asked, *MORE_HONEST))
