"""Every outcome that ranks can have, and what they must make of it together. For three ranks."""

import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st


def total(communicator: Any) -> float:
    result = np.zeros(5)
    communicator.Allreduce(np.full(5, communicator.rank + 1.0), result)
    return float(result[4])


def test_right(communicator: Any) -> None:
    assert total(communicator) == communicator.size * (communicator.size + 1) / 2


def test_one_raises(communicator: Any) -> None:
    print(f"printed by {communicator.rank}")
    if communicator.rank == 1:
        raise ValueError("planted at 1")
    total(communicator)


def test_right_after_one_raised(communicator: Any) -> None:
    test_right(communicator)


def test_all_fail_alike(communicator: Any) -> None:
    assert communicator.size == 0


def test_one_leaves_python(communicator: Any) -> None:
    if communicator.rank == 2:
        sys.exit(3)
    communicator.Recv(np.empty(1), source=2)


@pytest.mark.deadline(3)
def test_one_sleeps(communicator: Any) -> None:
    if communicator.rank == 1:
        time.sleep(600)
    communicator.Barrier()


@pytest.mark.skip(reason="planted")
def test_skipped() -> None:
    pass


def test_one_skips(communicator: Any) -> None:
    if communicator.rank == 1:
        pytest.skip("not here")


@pytest.mark.mpi(min_size=30)
def test_too_few() -> None:
    pass


@pytest.mark.xfail(raises=ZeroDivisionError)
def test_one_fails_as_expected(communicator: Any) -> None:
    if communicator.rank == 0:
        raise ZeroDivisionError
    communicator.Barrier()


@given(n=st.integers(1, 300))
def test_drawn(communicator_: Any, n: int) -> None:
    result = np.zeros(n)
    communicator_.Allreduce(np.ones(n), result)
    assert (result == communicator_.size).all()


@given(n=st.integers(1, 300))
def test_drawn_fails_on_one(communicator_: Any, n: int) -> None:
    if communicator_.rank == 1:
        assert n < 20
    communicator_.Allreduce(np.ones(n), np.zeros(n))


@pytest.fixture(scope="module")
def communicator_(request: pytest.FixtureRequest) -> Any:
    """Hypothesis refuses fixtures of a function's scope: the same, of the module's."""
    from d5test.plugin.ranks.ranks import RANKS

    ranks = request.config.stash[RANKS]

    class Current:
        def __getattr__(self, name: str) -> Any:
            return getattr(ranks.communicator, name)

    return Current()


@pytest.fixture
def broken_at_one(communicator: Any) -> None:
    if communicator.rank == 1:
        raise OSError("planted in a fixture")


def test_fixture_breaks_on_one(communicator: Any, broken_at_one: None) -> None:
    communicator.Barrier()


def test_right_at_the_end(communicator: Any) -> None:
    test_right(communicator)
