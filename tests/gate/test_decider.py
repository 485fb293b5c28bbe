"""The rules, on numbers."""

from itertools import product
from math import log1p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, wilcoxon

from d5test.compare.noise import BENCHMARK
from d5test.gate.decider import (
    CLEARLY,
    LOOKS,
    PAIRS,
    Decider,
    centre,
    chance,
    error,
    floor,
    signed_rank_p,
)
from d5test.gate.evidence import Evidence
from tests.nightly import at_night

DECIDER = Decider()
PAIR = st.floats(-0.1, 0.1)


@given(st.lists(PAIR, min_size=PAIRS, max_size=PAIRS), st.sampled_from([BENCHMARK, 1e-3, 1e-5]))
def test_what_convicts_early_convicts_in_the_end(pairs: list[float], level: float) -> None:
    for seen in range(PAIRS + 1):
        settled = DECIDER.settled(pairs[:seen], level)
        if settled is True:
            assert DECIDER.guilty(pairs, level)
        elif settled is False and not let_go(pairs[:seen]):
            assert not DECIDER.guilty(pairs, BENCHMARK)
    if level == BENCHMARK:
        assert settled is not None


def let_go(pairs: list[float]) -> bool:
    return centre(pairs) + CLEARLY * error(pairs) < DECIDER.limit


def told(pairs: list[float]) -> tuple[bool, int]:
    """What is settled of them, and after how many."""
    for seen in range(1, PAIRS + 1):
        settled = DECIDER.settled(pairs[:seen], BENCHMARK)
        if settled is not None:
            return settled, seen
    raise AssertionError("not settled by all pairs")


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.04])
def test_identical_code_is_let_go_early_and_the_effect_hardly_ever(noise: float) -> None:
    draw = np.random.default_rng(5)
    same = [told(draw.normal(0, noise, PAIRS).tolist()) for _ in range(200)]
    assert sum(settled for settled, _ in same) <= 200 * BENCHMARK
    assert np.mean([seen for _, seen in same]) < (8 if noise < 0.03 else 13)
    slower = draw.normal(log1p(DECIDER.effect), noise, (200, PAIRS)).tolist()
    late = [DECIDER.guilty(pairs, BENCHMARK) for pairs in slower]
    assert sum(late) - sum(told(pairs)[0] for pairs in slower) <= 2


@pytest.mark.parametrize("shift", [-0.02, 0.0, 0.01, 0.03])
@pytest.mark.parametrize("count", [1, 2, 7, 20])
def test_the_signed_rank_test_is_scipys(count: int, shift: float) -> None:
    pairs = np.random.default_rng(count).normal(shift, 0.02, count)
    want = wilcoxon(pairs, alternative="greater", method="exact").pvalue
    assert signed_rank_p(pairs.tolist()) == pytest.approx(want)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=7))
def test_with_ties_it_counts_all_signs(pairs: list[int]) -> None:
    ranks = rankdata(np.abs(pairs))
    above = ranks[np.array(pairs) > 0].sum()
    sums = [ranks[list(signs)].sum() for signs in product((True, False), repeat=len(pairs))]
    assert signed_rank_p(pairs) == pytest.approx(np.mean(np.array(sums) >= above))


def test_the_centre_is_hodges_and_lehmanns() -> None:
    assert centre([0.03]) == 0.03
    assert centre([0.0, 0.01, 0.05]) == pytest.approx(
        np.median([0, 0.01, 0.05, 0.005, 0.025, 0.03])
    )


@pytest.mark.parametrize("law", ["normal", at_night("laplace"), "standard_cauchy"])
def test_identical_code_is_never_worse_than_promised(law: str) -> None:
    """Whatever the noise is, if only who comes first is drawn: as likely as far below."""
    draw = np.random.default_rng(0)
    pairs = 0.2 * getattr(draw, law)(size=(3000, PAIRS))
    p = np.array([chance(each.tolist()) for each in pairs])
    assert np.mean(p <= BENCHMARK) <= BENCHMARK + 3 * np.sqrt(BENCHMARK / 3000)
    alarms = sum(DECIDER.guilty(each.tolist(), BENCHMARK) for each in pairs)
    assert alarms <= np.count_nonzero(p <= BENCHMARK)


@pytest.mark.parametrize(("noise", "least"), [(0.005, 0.99), (0.02, 0.99), (0.05, 0.9)])
def test_the_effect_is_found(noise: float, least: float) -> None:
    draw = np.random.default_rng(1)
    shift = log1p(DECIDER.effect)
    pairs = draw.normal(shift, noise, (1000, PAIRS)).tolist()
    found = sum(DECIDER.guilty(each, BENCHMARK) for each in pairs)
    assert found >= 1000 * least


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05, 0.1])
def test_what_pairs_would_confirm_is_what_they_confirm(noise: float) -> None:
    draw = np.random.default_rng(4)
    shift = DECIDER.confirmable((noise * np.array([-1, 1] * (PAIRS // 2))).tolist(), BENCHMARK)
    pairs = draw.normal(shift, noise, (1000, PAIRS)).tolist()
    assert 900 < sum(DECIDER.guilty(each, BENCHMARK) for each in pairs) < 990


def test_what_is_clear_is_convicted_at_the_first_look() -> None:
    first = min(LOOKS)
    draw = np.random.default_rng(8)
    clear = [told(pairs) for pairs in draw.normal(0.05, 0.01, (50, PAIRS)).tolist()]
    assert set(clear) == {(True, first)}
    others = [told(pairs)[1] for pairs in draw.normal(0.05, 0.05, (50, PAIRS)).tolist()]
    assert min(others) == first
    assert max(others) > PAIRS / 2


def test_pairs_that_a_budget_ended_are_looked_at() -> None:
    """In place of the next look: what had been found before stays found."""
    assert DECIDER.guilty([0.05] * 9, 1e-2)
    assert not DECIDER.guilty([0.05] * 9, 1e-3)
    assert DECIDER.guilty([*[0.05] * 12, *[0.0] * 20], 1e-2)


def test_half_of_the_effect_is_none() -> None:
    assert not DECIDER.guilty([0.99 * DECIDER.limit] * PAIRS, BENCHMARK)


@pytest.mark.parametrize(
    ("shifts", "charge"),
    [([0.03], 1), ([0.03, -0.01, 0.01], 0), ([-0.03], -1), ([-0.03, -0.02], 0), ([0.015], 0)],
)
def test_a_charge_is_what_the_sessions_say(shifts: list[float], charge: int) -> None:
    none = [0.0] * len(shifts)
    assert DECIDER.charge(Evidence(shifts, none, none)) == charge


@pytest.mark.parametrize(
    ("control", "error", "charge"),
    [(0.01, 0.01, 0), (-0.1, 0.01, 1), (0.01, 0.06, 1), (0.03, 0.01, 0), (0.04, 0.01, 1)],
)
def test_what_errs_a_lot_is_charged_before(control: float, error: float, charge: int) -> None:
    """By its blocks or by its processes: a slowdown of the effect might be hidden."""
    assert DECIDER.charge(Evidence([0.005], [control], [error])) == charge
    assert DECIDER.charge(Evidence([-0.005], [control], [error])) == 0


def test_an_improvement_is_one_beyond_the_error_only() -> None:
    assert DECIDER.charge(Evidence([-0.05], [0.01], [0.01])) == -1
    assert DECIDER.charge(Evidence([-0.05], [0.04], [0.01])) == 0
    assert DECIDER.charge(Evidence([-0.06] * 4, [0.04] * 4, [0.01] * 4)) == -1


def test_a_slowdown_is_charged_whatever_the_sessions_err_by() -> None:
    draw = np.random.default_rng(6)
    for noise in (0.01, 0.02, 0.04, 0.08):
        arms = draw.normal(0, noise / np.sqrt(1.5), (2000, 3))
        shifts = log1p(DECIDER.effect) + arms[:, 2] - arms[:, :2].mean(axis=1)
        controls = arms[:, 1] - arms[:, 0]
        charged = [
            DECIDER.charge(Evidence([shift], [control], [0.8 * noise]))
            for shift, control in zip(shifts.tolist(), controls.tolist(), strict=True)
        ]
        assert charged.count(1) > 2000 * (0.85 if noise < 0.05 else 0.6)


def test_the_noise_of_a_shift_is_told_by_controls() -> None:
    draw = np.random.default_rng(2)
    arms = draw.normal(0, 0.01, (2000, 3))
    shifts = arms[:, 2] - arms[:, :2].mean(axis=1)
    one = Evidence(controls=list(arms[:, 1] - arms[:, 0]))
    assert floor([one]) == pytest.approx(shifts.std(), rel=0.05)


def test_what_can_be_found_is_found() -> None:
    draw = np.random.default_rng(3)
    noise = 0.01
    shift = DECIDER.detectable(noise)
    found = np.mean(draw.normal(shift, noise, 20000) > DECIDER.screen)
    assert found == pytest.approx(0.95, abs=0.01)
