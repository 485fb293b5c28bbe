"""The rules, on numbers."""

from __future__ import annotations

from math import log1p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from d5test.compare.noise import BENCHMARK
from d5test.gate.decider import PAIRS, Decider, floor, sign_p
from d5test.gate.evidence import Evidence

DECIDER = Decider()
PAIR = st.floats(-0.1, 0.1)


@given(st.lists(PAIR, min_size=PAIRS, max_size=PAIRS), st.sampled_from([BENCHMARK, 1e-3, 1e-5]))
def test_what_is_settled_early_is_what_all_pairs_say(pairs: list[float], level: float) -> None:
    for seen in range(PAIRS + 1):
        settled = DECIDER.settled(pairs[:seen], level)
        if settled is True:
            assert DECIDER.guilty(pairs, level)
        elif settled is False:
            assert not DECIDER.guilty(pairs, BENCHMARK)
    if level == BENCHMARK:
        assert settled is not None


@pytest.mark.parametrize("above", [0, 3, 10, 17, 20])
def test_the_sign_test_is_scipys(above: int) -> None:
    pairs = [0.1] * above + [-0.1] * (20 - above)
    assert sign_p(pairs) == pytest.approx(binomtest(above, 20, alternative="greater").pvalue)


def test_identical_code_is_never_worse_than_promised() -> None:
    draw = np.random.default_rng(0)
    alarms = sum(
        DECIDER.guilty(draw.normal(0, 0.2, PAIRS).tolist(), BENCHMARK) for _ in range(5000)
    )
    assert alarms <= 5000 * BENCHMARK


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_the_effect_is_found(noise: float) -> None:
    draw = np.random.default_rng(1)
    shift = log1p(DECIDER.effect)
    pairs = draw.normal(shift, noise, (1000, PAIRS)).tolist()
    found = sum(DECIDER.guilty(each, BENCHMARK) for each in pairs)
    assert found >= 990


def test_half_of_the_effect_is_none() -> None:
    assert not DECIDER.guilty([0.99 * DECIDER.limit] * PAIRS, BENCHMARK)


@pytest.mark.parametrize(
    ("shifts", "charge"),
    [([0.03], 1), ([0.03, -0.01, 0.01], 0), ([-0.03], -1), ([-0.03, -0.02], 0), ([0.015], 0)],
)
def test_a_charge_is_what_the_sessions_say(shifts: list[float], charge: int) -> None:
    assert DECIDER.charge(Evidence(shifts, [0.0] * len(shifts))) == charge


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
