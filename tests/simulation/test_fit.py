"""A machine that was planted is found in noisy times of it, within its stated confidence."""

from dataclasses import replace

import numpy as np
import pytest

from d5test.simulation import fit as fitting
from d5test.simulation.fit import NAMES, Fit, Time, TooFew, fit, predict, predictions
from d5test.simulation.machine import Machine

TRUTH = Machine(2e-6, 1e-9, 6e-10, overhead=1e-6)
VALUES = dict(zip(NAMES, (4e-6, 1e-6, 1e-9, 6e-10), strict=True))
SIZES = (8, 2**14, 2**20, 2**24)
SURE = 1 - 1e-11
"""Four intervals of each of 20 fits: a false alarm in 1e-9."""
ALGORITHMS = ("star", "tree", "ring", "recursive_doubling", "halving_doubling", "pipelined")


def planted(seed: int, noise: float = 0.05, machine: Machine = TRUTH) -> list[Time]:
    """Times with a normal relative error."""
    rng = np.random.default_rng(seed)
    times = [Time(name, 4, n, 1.0) for name in ALGORITHMS for n in SIZES]
    exact = predict(times, machine) * (1 + noise * rng.standard_normal(len(times)))
    return [replace(t, seconds=float(s)) for t, s in zip(times, exact, strict=True)]


def outside(found: Fit, confidence: float) -> list[str]:
    """The parameters whose truth the interval does not hold."""
    return [
        name
        for name, value in found.values.items()
        if abs(value - VALUES[name]) > found.half(name, confidence)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_found(seed: int) -> None:
    found = fit(planted(seed))
    assert outside(found, SURE) == []
    assert found.determined["alpha"]
    assert found.determined["beta"]


def test_without_noise_it_is_found_exactly() -> None:
    found = fit(planted(0, noise=0))
    assert found.values == pytest.approx(VALUES, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_no_machine_fits_noisy_times_better_even_if_it_is_the_true_one(seed: int) -> None:
    times = planted(seed, noise=0.3)
    measured = np.array([t.seconds for t in times])
    ours, true = (
        fitting._deviance(measured / predict(times, m)) for m in (fit(times).machine, TRUTH)
    )
    assert ours <= true


@pytest.fixture(scope="module")
def fits() -> list[Fit]:
    """Forty, of few times each."""
    few = ("star", "ring", "recursive_doubling")
    return [fit([t for t in planted(seed) if t.algorithm in few]) for seed in range(40)]


def covered(fits: list[Fit]) -> int:
    """In how many of them the 95% interval of beta holds the truth."""
    return sum("beta" not in outside(found, 0.95) for found in fits)


COVERED = 24
"""Of 40: fewer have a chance of 1e-11 (binomial, 0.95)."""


def test_the_interval_holds_the_truth_as_often_as_it_says(fits: list[Fit]) -> None:
    assert covered(fits) >= COVERED


def test_an_interval_that_is_too_narrow_is_found(
    fits: list[Fit], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Fit.half
    monkeypatch.setattr(Fit, "half", lambda self, name, sure: half(self, name, sure) / 5)
    assert covered(fits) < COVERED


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m: replace(m, per_byte=m.per_byte / 2),
        lambda m: replace(m, latency=2 * m.latency),
        lambda m: replace(m, addition=3 * m.addition),
    ],
    ids=["half the bytes", "twice the latency", "three times the sums"],
)
def test_a_model_that_is_wrong_is_found(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    times = planted(3, noise=0.01)
    right = fitting.predict
    monkeypatch.setattr(fitting, "predict", lambda t, m: right(t, wrong(m)))  # type: ignore[operator]
    assert outside(fit(times), SURE)


def test_one_algorithm_does_not_tell_beta_from_gamma() -> None:
    found = fit([t for seed in (1, 2) for t in planted(seed) if t.algorithm == "ring"])
    assert [name for name in NAMES if found.determined[name]] == ["alpha"]


def test_small_messages_do_not_tell_beta() -> None:
    times = [replace(t, nbytes=8 + 8 * i) for i, t in enumerate(planted(1)) if t.nbytes == 8]
    found = fit(times)
    assert [name for name in NAMES if found.determined[name]] == ["alpha", "overhead"]


def test_each_size_is_predicted_by_the_others() -> None:
    predicted = list(predictions(planted(5, noise=0)))
    assert all(row.held_out for row in predicted)
    assert max(abs(row.off) for row in predicted) < 1e-6
    # a size that is off does not help to predict itself
    times = [replace(t, seconds=9 * t.seconds) if t.nbytes == 8 else t for t in planted(5)]
    off = [row.off for row in predictions(times) if row.time.nbytes == 8]
    assert max(off) < -0.5


def test_too_few_times_are_told() -> None:
    with pytest.raises(TooFew, match="3 times of allreduces"):
        fit(planted(0)[:3])
