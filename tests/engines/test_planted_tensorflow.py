"""Engines of TensorFlow that are wrong on purpose are found, and named; honest ones are right."""

from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_planted_jax import judged, right, see

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
pytest.importorskip("tensorflow")
FOUND = {
    "MeanOfOwn:mlp-sgd": ("value", "a mean over W - 1 = 1 ranks"),  # a sum, that is
    "OneNotSummed:mlp-sgd": ("value", "a lost bucket: second.down.bias"),
}
MORE_FOUND = {
    "MeanOfOwn:mlp-adamw": ("value", "a sum instead of a mean"),
    "MeanOverTooFew:mlp-sgd": ("value", "a mean over W - 1 = 3 ranks"),
    "ClippedByOwnNorm:mlp-clipped": ("value", "each rank's gradient clipped by its own norm"),
    "ClippedByKeras:mlp-clipped": ("value", ""),
    "OneNotSummed:mlp-sgd": ("value", "a lost bucket: second.down.bias"),
    "NothingSummed:mlp-sgd": ("value", ""),
    "LastUnevenShareLost:mlp-uneven": ("value", ""),
    "PaddingCounted:mlp-uneven": ("value", ""),
    "EpsilonAsItStands:mlp-adamw": ("value", ""),
    "StateForgotten:mlp-sgd": ("value", ""),
    "RowsOneByOne:transformer-adamw": ("value", ""),
}
HONEST = ("MultiWorker:mlp-sgd",)
MORE_HONEST = (
    "MultiWorker:mlp-adamw", "MultiWorker:mlp-accumulated", "MultiWorker:mlp-tied",
    "MultiWorker:mlp-uneven", "OtherSeed:mlp-sgd", "SummedOnce:mlp-clipped", "Eager:mlp-sgd",
    "RowsOneByOne:transformer-sgd", "MultiWorker:transformer-adamw",
)  # fmt: skip


def said(ranks: int, asked: str, *others: Any) -> dict[str, Any]:
    return judged(ranks, "planted_tensorflow", *others)[asked]


@pytest.mark.parametrize("asked", FOUND)
def test_it_is_found(asked: str) -> None:
    see(said(2, asked, *FOUND, *HONEST), *FOUND[asked])


@pytest.mark.parametrize("asked", HONEST)
def test_what_is_right_is_not_accused(asked: str) -> None:
    right(said(2, asked, *FOUND, *HONEST))


@pytest.mark.nightly
@pytest.mark.parametrize("asked", MORE_FOUND)
def test_it_is_found_on_four(asked: str) -> None:
    see(said(4, asked, *MORE_FOUND), *MORE_FOUND[asked])


@pytest.mark.nightly
@pytest.mark.parametrize("asked", MORE_HONEST)
def test_nor_is_it_accused_on_four(asked: str) -> None:
    right(said(4, asked, *MORE_HONEST))
