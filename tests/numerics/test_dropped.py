"""A Dropout in training that is wrong is accused, in words that say of what."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Tensor
from d5test.checks import Fault, dropout
from d5test.reference.operators.movement import Dropout, trains
from tests.faults.score import with_row

SHAPE = (64, 400)
CASE = Case(
    Dropout(),
    (Tensor(SHAPE, values=("uniform", 1, 2)), Tensor((), data=(0.25,)),
     Tensor((), "bool", data=(True,))),
    seed=1,
)  # fmt: skip
FIXED = np.random.default_rng(5).random(SHAPE) >= 0.25


@dataclass(frozen=True, kw_only=True, repr=False)
class Masked(Dropout):
    """A Dropout with a mask of its own."""

    def mask(self, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    def forward(self, x: Any, ratio: Any = None, training_mode: Any = None) -> Any:
        if not trains(training_mode) or training_mode.ndim:
            return super().forward(x, ratio, training_mode)
        mask = self.mask(x.shape)
        return self.dropped(x, mask, ratio), mask


def honest(generator: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return generator.random(shape) >= 0.25


def said(mask: Callable[..., Any] = honest, **changed: Any) -> str:
    """What the check says of a row that has this mask, or other functions."""
    generator = np.random.default_rng(3)
    changed["mask"] = lambda self, shape: mask(generator, shape)
    client = with_row(Dropout, type("Dropout", (Masked,), changed))
    try:
        dropout(client, CASE)
    except Fault as fault:
        return f"{fault.kind}: {fault.headline}"
    return ""


def test_an_honest_one_is_not_accused() -> None:
    assert not said()


@pytest.mark.parametrize(
    ("mask", "words"),
    {
        "the share of the others": (lambda g, s: g.random(s) < 0.25, "are 0, where"),
        "a fifth": (lambda g, s: g.random(s) >= 0.2, "are 0, where"),
        "one row for all": (
            lambda g, s: np.broadcast_to(g.random(s[1:]) >= 0.25, s), "go with those 400 before"
        ),
        "none": (lambda g, s: np.ones(s, bool), "are 0, where"),
        "the same in each call": (lambda g, s: FIXED, "two calls draw the same mask"),
    }.values(),
)  # fmt: skip
def test_a_wrong_mask_is_found(mask: Callable[..., Any], words: str) -> None:
    assert words in said(mask)


def test_what_is_kept_has_to_be_scaled() -> None:
    def unscaled(self: Any, x: Any, mask: Any, ratio: Any) -> Any:
        return mask * x

    assert said(dropped=unscaled).startswith("value")


def test_the_gradient_has_the_mask_of_its_call() -> None:
    def again(self: Any, grads: Any, inputs: Any, outputs: Any) -> Any:
        return Dropout.backward(self, grads, inputs, (outputs[0], self.mask(inputs[0].shape)))

    def unscaled(self: Any, grads: Any, inputs: Any, outputs: Any) -> Any:
        return grads[0] * outputs[1], None, None

    assert said(backward=again).startswith("gradient")
    assert said(backward=unscaled).startswith("gradient")


def test_the_mask_that_is_returned_is_that_of_the_result() -> None:
    def other(self: Any, x: Any, ratio: Any = None, training_mode: Any = None) -> Any:
        y, mask = Masked.forward(self, x, ratio, training_mode)
        return y, ~mask

    assert "the mask is not that of the result" in said(forward=other)
