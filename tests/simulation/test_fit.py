"""A machine that was planted is found in noisy times of it, within its stated confidence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from d5test.cli.fit import JUDGED
from d5test.reference.collectives import ALLREDUCE
from d5test.simulation import fit as fitting
from d5test.simulation.events import Timeline, simulate
from d5test.simulation.fit import NAMES, Fit, Time, TooFew, bends_of, fit, predict, predictions
from d5test.simulation.machine import Bend, Machine
from tests.simulation.wrong_simulators import SIMULATORS

TRUTH = Machine(2e-6, 1e-9, 6e-10, overhead=1e-6)
VALUES = dict(zip(NAMES, (3e-6, 1e-6, 1e-9, 6e-10), strict=True))
BUSY = Machine(7e-7, 1e-9, 6e-10, overhead=5e-6)
"""The overhead of a receive outlasts an empty message, as it does with MPI in shared memory."""
SIZES = (8, 2**14, 2**20, 2**24)
SURE = 1 - 1e-11
"""Four intervals of each of 20 fits: a false alarm in 1e-9."""
ALGORITHMS = ("star", "tree", "ring", "recursive_doubling", "halving_doubling", "pipelined")


def planted(
    seed: int, noise: float = 0.05, machine: Machine = TRUTH, sizes: Sequence[int] = SIZES
) -> list[Time]:
    """Times with a normal relative error."""
    rng = np.random.default_rng(seed)
    times = [Time(name, 4, n, 1.0) for name in ALGORITHMS for n in sizes]
    exact = predict(times, machine) * (1 + noise * rng.standard_normal(len(times)))
    return [replace(t, seconds=float(s)) for t, s in zip(times, exact, strict=True)]


def outside(found: Fit, confidence: float, truth: Mapping[str, float] = VALUES) -> list[str]:
    """The parameters whose truth the interval does not hold."""
    return [
        name
        for name, value in found.values.items()
        if abs(value - truth[name]) > found.half(name, confidence)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_found(seed: int) -> None:
    found = fit(planted(seed))
    assert outside(found, SURE) == []
    assert found.determined["alpha"]
    assert found.determined["beta"]


@pytest.mark.parametrize("machine", [TRUTH, BUSY], ids=["waiting", "busy"])
def test_without_noise_it_is_found_exactly(machine: Machine) -> None:
    found = fit(planted(0, noise=0, machine=machine))
    assert found.values == pytest.approx(Fit(machine, {}, {}, 0, 1).values, rel=1e-6)


BENT = replace(TRUTH, bends=(Bend(2**14, 2e-10, 1e-9), Bend(2**20, 4e-10, 2e-10)))
"""Messages from 16 KiB on have another protocol, and from 1 MiB on a cache does not hold them."""


def test_a_machine_that_bends_is_found() -> None:
    times = planted(0, noise=0, machine=BENT)
    assert bends_of(times) == (2**14, 2**20)
    found = fit(times, bends_of(times))
    assert found.values == pytest.approx(Fit(BENT, {}, {}, 0, 1).values, rel=1e-6)
    assert list(found.values) == [
        "alpha", "overhead", "beta to 16 KiB", "beta to 1 MiB", "beta beyond",
        "gamma to 16 KiB", "gamma to 1 MiB", "gamma beyond",
    ]  # fmt: skip
    assert fit(times).residual > 0.1


@pytest.mark.parametrize("seed", range(6))
def test_so_it_is_in_noisy_times(seed: int) -> None:
    times = planted(seed, machine=BENT)
    found, truth = fit(times, bends_of(times)), Fit(BENT, {}, {}, 0, 1).values
    assert outside(found, SURE, truth) == []


@pytest.mark.nightly
def test_sizes_between_others_are_predicted_by_a_fit_that_bends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = tuple(2**n for n in range(3, 25, 3))
    times = planted(0, noise=0, machine=BENT, sizes=sizes)

    def furthest() -> float:
        return max(abs(p.off) for p in predictions(times) if 8 < p.time.nbytes < sizes[-1])

    assert furthest() < JUDGED
    monkeypatch.setattr(fitting, "bends_of", lambda times: ())
    assert furthest() > JUDGED


def test_few_times_have_one_beta() -> None:
    times = [t for t in planted(0) if t.algorithm in ("ring", "star")]
    assert bends_of(times) == ()
    assert all(row.held_out for row in predictions(times))


@pytest.mark.parametrize("seed", range(6))
def test_a_machine_with_busy_receivers_is_found(seed: int) -> None:
    found = fit(planted(seed, machine=BUSY))
    truth = dict(zip(NAMES, (BUSY.alpha, BUSY.overhead, 1e-9, 6e-10), strict=True))
    assert outside(found, SURE, truth) == []
    assert found.determined["alpha"]
    assert found.determined["overhead"]


OWN = {name: 1e-5 * (k + 1) for k, name in enumerate(ALGORITHMS)}
"""Seconds that schedules take by themselves: up to twenty messages."""


def test_what_a_schedule_takes_by_itself_is_not_the_machine() -> None:
    times = planted(0, noise=0)
    longer = [replace(t, seconds=t.seconds + OWN[t.algorithm]) for t in times]
    known = [replace(t, own=OWN[t.algorithm]) for t in longer]
    assert fit(known).values == pytest.approx(VALUES, rel=1e-6)
    assert all(abs(p.off) < 1e-6 for p in predictions(known))
    assert fit(longer).values["alpha"] > 2 * VALUES["alpha"]


MPICH = {"star": 11.9, "tree": 11.7, "recursive_doubling": 9.9, "halving_doubling": 19.1}
"""Microseconds of 8 bytes on 2 quiet cores, MPICH 5.0.2: an exchange takes 1.7 times a message."""


def furthest(simulator: Callable[..., Timeline], machine: Machine) -> float:
    """The largest relative error for `MPICH`."""
    return max(
        abs(simulator(ALLREDUCE[name].schedule, 2, 2, machine).seconds / seconds - 1)
        for name, seconds in MPICH.items()
    )


def test_an_overhead_that_overlaps_with_waiting_explains_an_exchange() -> None:
    assert furthest(simulate, Machine(0.75, 0, overhead=4.75)) < 0.1


@pytest.mark.parametrize("alpha", np.linspace(4, 12, 17))
def test_an_overhead_after_arrival_cannot_on_any_machine(alpha: float) -> None:
    """A tree takes two empty messages, an exchange one, whatever L and o: 2.0, and not 1.2."""
    for share in (0, 0.25, 0.5):
        machine = Machine((1 - 2 * share) * alpha, 0, overhead=share * alpha)
        assert furthest(SIMULATORS["overhead_after_arrival"], machine) > 0.25


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
    assert not found.determined["beta"]
    assert not found.determined["gamma"]


@pytest.mark.parametrize("machine", [TRUTH, BUSY], ids=["waiting", "busy"])
def test_exchanges_alone_leave_room_for_a_long_overhead_or_a_long_latency(
    machine: Machine,
) -> None:
    """They take the longer of 2 o and o + L: a ring has one number for both."""
    times = [t for seed in (1, 2) for t in planted(seed, machine=machine) if t.algorithm == "ring"]
    found = fit(times)
    assert abs(found.values["overhead"] - machine.overhead) <= found.half("overhead", SURE)
    assert abs(found.values["alpha"] - machine.alpha) <= found.half("alpha", SURE)


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
