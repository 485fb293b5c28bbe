"""Dropout that is wrong on purpose is found; that of honest engines is not accused."""

from typing import Any

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
    "SeededInEachPart": ("work", "two parts of a step drop the same numbers"),
    "SeededByRankAndStep": ("work", "two ranks in different steps drop the same numbers"),
    "SeededAtTheStart": ("work", "two ranks drop the same numbers"),
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
    drops = Drops.of([[[[kept(1)]], [[kept(2)]]]], [[range(8)] * 2], [[8, 8]], 0.25)
    ((factors,),) = drops.factors
    assert factors.shape == (16, 32)
    assert sorted(set(factors.unique().tolist())) == [0.0, 1 / 0.75]
    assert [*drops.odd(0.25)] == []


def test_samples_may_pass_in_any_order() -> None:
    order = [4, 5, 6, 7, 0, 1, 2, 3]
    drops = Drops.of([[[[kept(1, (4, 32)), kept(2, (4, 32))]]]], [[order]], [[8]], 0.25)
    ((factors,),) = drops.factors
    passed = np.concatenate([kept(2, (4, 32)), kept(1, (4, 32))])
    assert np.array_equal(factors.numpy() != 0, passed)
    ((factors,),) = Drops.of([[[[kept(1)]]]], [[[-1] * 8]], [[8]], 0.25).factors
    assert np.array_equal(factors.numpy() != 0, kept(1))  # which they are cannot be told


def test_samples_that_pass_twice_are_not_judged() -> None:
    with pytest.raises(Unsupported, match="saw 8 samples of a rank that has 4"):
        Drops.of([[[[kept(1)]], [[kept(2)]]]], [[range(4)] * 2], [[4, 4]], 0.25)


@pytest.mark.parametrize(
    ("second", "what", "first", "other"),
    [
        ([[[3, 4]], [[1, 5]]], "two ranks in different steps", "rank 0, part 1", "rank 1, part 1"),
        ([[[1, 4]], [[5, 6]]], "two steps", "step 1, rank 0, part 1", "step 2, rank 0, part 1"),
        ([[[3, 3]], [[5, 6]]], "two parts of a step", "step 2, rank 0, part 1", "rank 0, part 2"),
        ([[[3, 4]], [[5, 3]]], "two ranks", "step 2, rank 0, part 1", "step 2, rank 1, part 2"),
    ],
)  # fmt: skip
def test_what_is_drawn_again_is_named(second: Any, what: str, first: str, other: str) -> None:
    steps = [[[[1, 2]], [[7, 8]]], second]  # by step, rank, module and part: what is drawn
    drawn = [[[[kept(n) for n in parts] for parts in rank] for rank in ranks] for ranks in steps]
    ((said, details),) = Drops.of(drawn, [[range(16)] * 2] * 2, [[16, 16]] * 2, 0.25).odd(0.25)
    assert said == f"{what} drop the same numbers"
    assert details["first"].endswith(first)
    assert details["second"].endswith(other)


def test_another_rate_is_named() -> None:
    rare = Drops.of([[[[kept(1)]], [[kept(2)]]]], [[range(8)] * 2], [[8, 8]], 0.5)
    assert [what for what, _ in rare.odd(0.5)] == ["dropout does not drop at its rate"]
