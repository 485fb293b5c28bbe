"""Honest samples are never accused, and wrong ones always are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Tensor
from d5test.checks import distribution
from d5test.checks.chance import ODDS, wrong
from d5test.outcome.fault import Fault
from d5test.reference.distributions import Categorical, Normal, Uniform
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.random import Random
from tests.faults.score import with_row

EPS = float(np.finfo(np.float32).eps)
SHAPE = (100, 500)
LAWS = {
    "normal": Normal(1, 2),
    "uniform": Uniform(-1, 3),
    "bernoulli": Categorical(np.array((0.75, 0.25))),
    "rare": Categorical(np.array((0.999, 0.001))),
    "classes": Categorical(np.array(((0.1, 0.2, 0.3, 0.4), (0.7, 0.3, 0, 0)))[:, None]),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_thousand_honest_samples_are_not_accused(name: str) -> None:
    """Nor are they where the odds are a thousand times those of the check."""
    for seed in range(1000):
        y = LAWS[name].draw(np.random.default_rng(seed), (2, 500))
        assert not wrong(LAWS[name], y.astype(np.float32), EPS, odds=1000 * ODDS), seed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("law", [Normal(100, 2), Normal(0, 1), Uniform(-1, 3), Uniform(0.5, 1)])
def test_samples_that_were_rounded_or_made_of_few_bits_are_not_accused(
    law: Any, dtype: str
) -> None:
    import ml_dtypes

    to = np.dtype(getattr(ml_dtypes, dtype, dtype))
    eps = float(ml_dtypes.finfo(to).eps)
    for seed in range(10):
        y = law.draw(np.random.default_rng(seed), SHAPE)
        assert not wrong(law, y.astype(to), eps), seed
        if isinstance(law, Uniform):
            few = np.floor(np.random.default_rng(seed).random(SHAPE) / eps) * eps
            few = (law.low + few * (law.high - law.low)).astype(to)
            assert not wrong(law, few, eps), seed


def rows_alike(y: Any) -> Any:
    return np.broadcast_to(y[:1], y.shape)


def one_row_again(y: Any) -> Any:
    return np.concatenate((y[:70], y[3:4], y[71:]))


WRONG: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "the variance for the deviation": ("normal", lambda y, _: 1 + (y - 1) * 2),
    "the mean forgotten": ("normal", lambda y, _: y - 1),
    "cut at three deviations, the rest there": ("normal", lambda y, _: np.clip(y, -5, 4)),
    "between 0 and 1": ("uniform", lambda y, _: (y + 1) / 4),
    "up to the width": ("uniform", lambda y, _: y + 1),
    "seven bits": ("uniform", lambda y, _: np.floor(y * 32) / 32),
    "2 % more": ("bernoulli", lambda y, g: y | (g.random(y.shape) < 0.02 / 0.75)),
    "1 - p": ("bernoulli", lambda y, _: 1 - y),
    "twos": ("bernoulli", lambda y, _: 2 * y),
    "never": ("rare", lambda y, _: 0 * y),
    "the classes turned": ("classes", lambda y, _: 3 - y),
    **{
        f"{what}, {law}": (law, lambda y, _, make=make: make(y))
        for law in ("normal", "uniform", "bernoulli")
        for what, make in (
            ("a row for all", rows_alike),
            ("a row again", one_row_again),
            ("blocks of 8", lambda y: np.tile(y[:, :8], (1, 63))[:, :500]),
            ("elements twice", lambda y: np.repeat(y[:, ::2], 2, 1)),
            ("sorted", np.sort),
        )
    },
    "antithetic": ("uniform", lambda y, _: np.concatenate((y[:50], 2 - y[:50]))),
    "a half is all ones": ("bernoulli", lambda y, _: np.where(np.arange(500) < 125, 1, 0) + 0 * y),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_samples_are_accused(name: str) -> None:
    law, make = WRONG[name]
    for seed in range(3):
        generator = np.random.default_rng(seed)
        shape = (2, 25_000) if law == "classes" else SHAPE
        y = make(LAWS[law].draw(generator, shape), generator)
        assert wrong(LAWS[law], y, EPS), seed


def planted(name: str, **changed: Any) -> str:
    """What the check says of a row that has other functions than the reference."""
    other = type(name, (OPERATORS[name],), changed)
    op, tensors = OPERATORS[name](seed=3.0, **MADE.get(name, {})), GIVEN.get(name, ())
    client = with_row(OPERATORS[name], other)
    for seeded in (op, replace(op, seed=None)):
        try:
            distribution(client, Case(seeded, tensors, seed=1))
        except Fault as fault:
            return f"{fault.kind}: {fault.headline}"
    return ""


MADE: dict[str, Any] = {
    "RandomNormal": {"shape": SHAPE, "mean": 1.0, "scale": 2.0},
    "RandomUniform": {"shape": SHAPE},
    "Multinomial": {"sample_size": 20_000},
}
GIVEN: dict[str, tuple[Tensor, ...]] = {
    "RandomNormalLike": (Tensor(SHAPE),),
    "RandomUniformLike": (Tensor(SHAPE),),
    "Bernoulli": (Tensor(SHAPE, values=("uniform", 0, 1)),),
    "Multinomial": (Tensor((2, 5)),),
}
DRAWN = [name for name, cls in OPERATORS.items() if issubclass(cls, Random)]


@pytest.mark.parametrize("name", DRAWN)
def test_the_check_accuses_who_ignores_a_seed_or_keeps_one(name: str) -> None:
    cls = OPERATORS[name]

    def of(seed: float | None) -> Callable[..., Any]:
        return lambda self, *inputs: cls.forward(replace(self, seed=seed), *inputs)

    assert not planted(name)
    assert "the same seed draws other numbers" in planted(name, forward=of(None))
    assert "another seed draws the same numbers" in planted(name, forward=of(2.0))

    def kept(self: Any, *inputs: Any) -> Any:
        return cls.forward(replace(self, seed=self.seed or 1.0), *inputs)

    assert "two calls without a seed" in planted(name, forward=kept)
    wide = lambda self, *inputs: cls.forward(self, *inputs).astype(np.float64)  # noqa: E731
    assert planted(name, forward=wide).startswith("dtype")
    flat = lambda self, *inputs: cls.forward(self, *inputs).ravel()  # noqa: E731
    assert planted(name, forward=flat).startswith("shape")


def test_the_check_accuses_normalised_probabilities_and_a_first_row_for_all() -> None:
    def first(self: Any, x: Any) -> Any:
        return OPERATORS["Multinomial"].forward(self, np.broadcast_to(x[:1], x.shape))

    def unscaled(self: Any, x: Any) -> Any:
        return OPERATORS["Multinomial"].forward(self, np.log(np.abs(x)))

    assert planted("Multinomial", forward=first).startswith("distribution")
    assert planted("Multinomial", forward=unscaled).startswith("distribution")
