"""The project's own tests, one of them through d5test's front door."""

import numpy as np
import pytest

import d5test
from d5test.reference.operators.reductions import Softmax


def test_options_are_the_projects_own(backend: str, request: pytest.FixtureRequest) -> None:
    assert backend == "theirs"
    assert request.config.getoption("--device") == "theirs"


@pytest.mark.check
def test_a_right_softmax() -> None:
    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    d5test.check(softmax, like=Softmax(axis=-1))


def test_a_wrong_softmax() -> None:
    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max())
        return e / e.sum(0, keepdims=True)

    with pytest.raises(AssertionError, match="Softmax"):
        d5test.check(softmax, like=Softmax(axis=-1))
