"""Dropout that is wrong on purpose is found; that of honest engines is not accused."""

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.engines.dropping import Drops
from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_drawn import suite
from tests.engines.test_planted import judged_of

WRONG = {
    "SameSeed": ("work", "two ranks drop the same numbers"),
    "SeededInEachStep": ("work", "two steps drop the same numbers"),
    "Switched": ("value", ""),
    "Unscaled": ("value", ""),
    "OtherRate": ("value", ""),
    "OtherRateByHand": ("work", "dropout does not drop at its rate"),
    "SumForMean": ("value", ""),
}
"""An engine; the kind of its fault, and words of it."""
HONEST = ("Ddp", "Zero", "Fsdp2", "Fsdp2:dropout-sgd:dp2,fsdp2", "Float16Ddp", "PostLocalSgd")
ASKED = (
    *(f"{name}:dropout-sgd" for name in WRONG),
    *(name if ":" in name else f"{name}:dropout-sgd" for name in HONEST),
)


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
def test_all_are_told_apart() -> None:
    said = judged_of("planted_dropout,planted", *ASKED)
    for name, (kind, words) in WRONG.items():
        fault = said[f"{name}:dropout-sgd"]
        assert fault.get("kind") == kind, fault
        assert words in fault["headline"]
    for asked in ASKED[len(WRONG) :]:
        assert 0 < said[asked].get("distance", 2.0) < 1, said[asked]


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_suite_judges_it(ranks: int) -> None:
    ran = suite("--engine=torch-ddp", "-k", "dropout-sgd", ranks=ranks)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def kept(seed: int, shape: tuple[int, int] = (8, 32)) -> np.ndarray:
    return np.random.Generator(np.random.Philox(seed)).random(shape) > 0.25


def test_the_sequential_run_drops_what_ranks_have_dropped() -> None:
    drops = Drops.of([[[kept(1)], [kept(2)]]], [[8, 8]], 0.25)
    ((factors,),) = drops.factors
    assert factors.shape == (16, 32)
    assert sorted(set(factors.unique().tolist())) == [0.0, 1 / 0.75]
    assert [*drops.odd(0.25)] == []


def test_samples_that_pass_twice_are_not_judged() -> None:
    with pytest.raises(Unsupported, match="saw 8 samples of a rank that has 4"):
        Drops.of([[[kept(1)], [kept(2)]]], [[4, 4]], 0.25)


def test_what_is_drawn_again_is_named() -> None:
    again = Drops.of([[[kept(1)], [kept(2)]], [[kept(3)], [kept(2)]]], [[8, 8]] * 2, 0.25)
    assert [what for what, _ in again.odd(0.25)] == ["two steps drop the same numbers"]
    alike = Drops.of([[[kept(1)], [kept(1)]]], [[8, 8]], 0.25)
    assert [what for what, _ in alike.odd(0.25)] == ["two ranks drop the same numbers"]
    rare = Drops.of([[[kept(1)], [kept(2)]]], [[8, 8]], 0.5)
    assert [what for what, _ in rare.odd(0.5)] == ["dropout does not drop at its rate"]
