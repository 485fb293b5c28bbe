"""How often identical code is called slower, and how often slower code is: by simulation.

The rates are those that the issue demands; a simulated count is compared with the quantile that a
true rate at the limit would exceed once in a thousand.
"""

import numpy as np
import pytest
from scipy.stats import binom

from d5test.compare.noise import BENCHMARK, POWER, SUITE, holm, shifts
from tests.compare.machines import MACHINES

BENCHMARKS = 20
SUITES = 120
ALONE = 800
"""Suites of one benchmark."""
RUNS = (2, 3, 5, 10)
NOTHING = 1e-9
"""No change is too small: the noise alone decides."""


def called(logs: np.ndarray, runs: int, effect: float) -> np.ndarray:
    """Which benchmarks are called worse: (suites, benchmarks)."""
    found = (shifts(suite[:, :runs], suite[:, runs:], effect) for suite in logs)
    return np.array([[shift.size > shift.limit for shift in suite] for suite in found])


def seen(suite: np.ndarray, runs: int) -> list[bool]:
    """Which benchmarks are called worse when each is slowed down by what is told detectable."""
    old, new = suite[:, :runs], suite[:, runs:]
    slower = np.array([[shift.detectable] for shift in shifts(old, new, 0.05)])
    return [shift.size > shift.limit for shift in shifts(old, new + slower, 0.05)]


def at_most(rate: float, trials: int) -> int:
    """How many alarms a true rate of this may give."""
    return int(binom.ppf(0.999, trials, rate))


@pytest.mark.parametrize(("old", "new"), [*zip(RUNS, RUNS, strict=True), (3, 2), (10, 2)])
@pytest.mark.parametrize("machine", MACHINES)
def test_identical_code_is_rarely_called_slower(machine: str, old: int, new: int) -> None:
    draw = np.random.default_rng([old, new])
    logs = 0.01 * MACHINES[machine](draw, SUITES, BENCHMARKS, old + new)
    alarms = called(logs, old, NOTHING)
    assert alarms.any(axis=1).sum() <= at_most(SUITE, SUITES)
    # An alarm of one suite may be of all of its benchmarks: they share their runs.
    assert alarms.mean(axis=1).sum() <= at_most(BENCHMARK, SUITES)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("machine", MACHINES)
def test_identical_code_is_as_rarely_called_faster(machine: str, runs: int) -> None:
    """Worse or better: both are one family, whose error is that of a suite."""
    draw = np.random.default_rng([runs, 3])
    logs = 0.01 * MACHINES[machine](draw, SUITES, BENCHMARKS, 2 * runs)
    found = [shifts(suite[:, :runs], suite[:, runs:], NOTHING) for suite in logs]
    changed = np.array([[abs(shift.size) > shift.limit for shift in suite] for suite in found])
    assert changed.any(axis=1).sum() <= at_most(SUITE, SUITES)


def test_the_two_sides_exchanged_are_the_same_answer() -> None:
    """What is worse one way is better the other, by the same limit."""
    logs = 0.01 * np.random.default_rng(8).standard_normal((20, 6))
    logs[::7, 3:] += 0.2
    there, back = shifts(logs[:, :3], logs[:, 3:], 0.05), shifts(logs[:, 3:], logs[:, :3], 0.05)
    assert [shift.size for shift in there] == pytest.approx([-shift.size for shift in back])
    assert [shift.limit for shift in there] == pytest.approx([shift.limit for shift in back])
    assert sum(shift.size > shift.limit for shift in there) == 3


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("machine", ["normal", "heavy", "shared", "walking"])
def test_one_benchmark_alone_is_rarely_called_slower(machine: str, runs: int) -> None:
    draw = np.random.default_rng([runs, 1])
    alarms = called(0.01 * MACHINES[machine](draw, ALONE, 1, 2 * runs), runs, NOTHING)
    assert alarms.sum() <= at_most(BENCHMARK, ALONE)


@pytest.mark.parametrize("runs", RUNS)
def test_a_slowdown_of_a_tenth_is_found_on_a_quiet_machine(runs: int) -> None:
    draw = np.random.default_rng(runs)
    logs = 0.0075 * MACHINES["unequal"](draw, SUITES, BENCHMARKS, 2 * runs)
    logs[:, ::4, runs:] += np.log(1.1)
    found = called(logs, runs, 0.05)
    assert found[:, ::4].mean() >= POWER
    assert found[:, 1::4].mean() <= BENCHMARK


@pytest.mark.parametrize("runs", RUNS)
def test_what_is_told_to_be_seen_is_seen(runs: int) -> None:
    """A slowdown as large as the detectable one, which depends on the noise of each suite."""
    logs = 0.01 * MACHINES["normal"](np.random.default_rng(runs), SUITES, BENCHMARKS, 2 * runs)
    assert np.mean([seen(suite, runs) for suite in logs]) >= POWER


def test_a_limit_is_known_by_hand() -> None:
    """One benchmark, two runs a side: Student's t with two degrees of freedom."""
    old, new = np.log([[1.00, 1.02]]), np.log([[1.50, 1.53]])
    variance = np.log(1.02) ** 2 / 2
    t = 6.964556734283583  # of P(t < -t) = 0.01, in closed form (1 - 2p) / sqrt(2 p (1 - p))
    assert t == pytest.approx((1 - 2 * 0.01) / np.sqrt(2 * 0.01 * 0.99))
    (shift,) = shifts(old, new, 0.05)
    assert shift.size == pytest.approx(np.log(1.5))
    assert shift.limit == pytest.approx(t * np.sqrt(2 * variance))


@pytest.mark.parametrize("runs", RUNS)
def test_a_drift_that_goes_on_is_no_change(runs: int) -> None:
    """One step a run, the same in all of twenty benchmarks, or in each of another size."""
    together = np.tile(0.01 * np.arange(2 * runs), (BENCHMARKS, 1))
    apart = together * np.arange(1, BENCHMARKS + 1)[:, None]
    for logs in (together, apart, together[:1]):
        for shift in shifts(logs[:, :runs], logs[:, runs:], NOTHING):
            assert shift.limit > shift.size > 0 or shift.limit == pytest.approx(shift.size)


def test_a_noisy_benchmark_is_judged_by_its_own_noise() -> None:
    logs = 0.001 * np.random.default_rng(4).standard_normal((SUITES, 100, 10))
    logs[:, 0] *= 30
    assert called(logs, 5, NOTHING)[:, 0].sum() <= at_most(SUITE, SUITES)
    assert np.mean([seen(suite, 5)[0] for suite in logs]) >= POWER
    logs[:, 1, 5:] += np.log(1.1)
    assert called(logs, 5, NOTHING)[:, 1].mean() >= POWER


@pytest.mark.parametrize(("old", "new"), [(1, 1), (9, 1), (1, 9)])
def test_one_run_may_be_the_disturbed_one(old: int, new: int) -> None:
    """Where each tenth run is disturbed, so is each tenth that is the only one."""
    logs = 0.001 * np.random.default_rng(5).standard_normal((20, old + new))
    logs[:, old:] += 1
    for shift in shifts(logs[:, :old], logs[:, old:], 0.05):
        assert shift.limit == shift.detectable == np.inf


def test_without_noise_the_effect_is_the_limit() -> None:
    logs = np.zeros((2, 4))
    logs[0, 2:] = np.log(1.03)
    logs[1, 2:] = np.log(1.02)
    slower, hardly = shifts(logs[:, :2], logs[:, 2:], 0.05)
    assert slower.size > slower.limit == pytest.approx(np.log(1.05) / 2)
    assert hardly.size < hardly.limit


def test_missing_runs_are_no_noise() -> None:
    """A benchmark without a second run spoils no other's floor."""
    logs = 0.01 * np.random.default_rng(3).standard_normal((20, 6))
    whole = shifts(logs[:, :3], logs[:, 3:], 0.05)
    more = np.vstack([logs, np.full((1, 6), np.nan)])
    more[20, [0, 3]] = 1.0, 5.0
    holes = shifts(more[:, :3], more[:, 3:], 0.05)
    assert holes[20].limit == np.inf
    for with_holes, without in zip(holes, whole, strict=False):
        assert with_holes.limit == pytest.approx(without.limit)


def test_holm_takes_one_test_after_the_other() -> None:
    p = np.array([0.9, 0.0001, 0.0052, np.nan, *[0.5] * 7])
    levels = holm(p, 10)
    assert levels[1] == pytest.approx(SUITE / 10)
    assert p[2] < levels[2] == pytest.approx(SUITE / 9)
    assert levels[0] == levels[4] == pytest.approx(SUITE / 8)
    assert holm(np.array([0.04]), 1)[0] == BENCHMARK
