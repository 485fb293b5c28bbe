"""What rounds say: nothing of identical code, whatever disturbs them; and what that errs by."""

import numpy as np
import pytest

from d5test.gate.evidence import Measurement
from d5test.gate.versions import ARMS, CONTROL, NEW, OLD


def measurement(slower: float, noise: float, seed: int = 0) -> Measurement:
    """Many blocks, whose rounds others make longer, each by a layout of its own."""
    draw = np.random.default_rng(seed)
    blocks = {}
    for arm in ARMS:
        rounds = 1 + noise * draw.exponential(size=(400, 12))
        rounds *= np.exp(draw.normal(0, 0.03, (400, 1))) * (slower if arm == NEW else 1)
        blocks[arm] = rounds.tolist()
    return Measurement(blocks=blocks, processes=[100] * 4)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("slower", [1.0, 1.05])
def test_skewed_noise_shifts_nothing(slower: float, noise: float) -> None:
    shift = measurement(slower, noise).longer(NEW, (OLD, CONTROL))
    assert shift.size == pytest.approx(np.log(slower), abs=0.03 * max(noise, 0.3))


def test_arms_that_were_disturbed_at_the_same_time_say_nothing_of_it() -> None:
    found = measurement(1.0, 0.0)
    load = np.random.default_rng(1).uniform(1, 3, (400, 12))
    for arm in ARMS:
        found.blocks[arm] = (np.array(found.blocks[arm]) * load).tolist()
    assert found.longer(NEW, (OLD,)).size == pytest.approx(0, abs=0.01)


def test_exchanged_arms_change_the_sign_and_nothing_else() -> None:
    found = measurement(1.02, 1.0)
    there, back = found.longer(NEW, (OLD,)), found.longer(OLD, (NEW,))
    assert (there.size, there.error) == pytest.approx((-back.size, back.error))


def few(draw: np.random.Generator, disturbed: float, blocks: int = 20) -> Measurement:
    """A machine on which other work takes its time in episodes, longer than a turn."""
    made = Measurement(processes=[blocks])
    for arm in ARMS:
        episodes = draw.uniform(size=(blocks, 4, 1)) < disturbed
        rounds = 1 + 0.01 * draw.exponential(size=(blocks, 4, 3))
        rounds += episodes * draw.exponential(size=(blocks, 4, 1))
        made.blocks[arm] = rounds.reshape(blocks, 12).tolist()
    return made


@pytest.mark.parametrize("disturbed", [0.0, 0.3, 0.6])
def test_the_error_is_what_sessions_differ_by(disturbed: float) -> None:
    """Where half of the rounds are disturbed, too: the quotients alone err by far more there."""
    draw = np.random.default_rng(2)
    shifts = [few(draw, disturbed).longer(NEW, (OLD, CONTROL)) for _ in range(100)]
    inside = np.mean([abs(shift.size) < 2 * shift.error for shift in shifts])
    assert 0.85 < inside < 1
    assert np.median([shift.error for shift in shifts]) < 0.01


def test_a_version_that_is_slower_in_half_of_its_blocks_is_not_told_by_its_fastest() -> None:
    made = few(np.random.default_rng(3), 0.0)
    new = np.array(made.blocks[NEW])
    new[::2] *= 1.2
    new[:4] *= 1.2
    made.blocks[NEW] = new.tolist()
    assert made.longer(NEW, (OLD, CONTROL)).size > 0.05


def test_of_one_block_nothing_is_known() -> None:
    assert few(np.random.default_rng(4), 0.0, blocks=1).longer(NEW, (OLD,)).error == np.inf


def test_what_processes_differ_by_is_an_error() -> None:
    """Each process of an arm is faster or slower as a whole, and its blocks do not tell."""
    draw = np.random.default_rng(7)
    shifts = []
    for _ in range(200):
        made = few(draw, 0.0)
        made.processes = [5] * 4
        for arm in ARMS:
            own = np.repeat(np.exp(draw.normal(0, 0.03, 4)), 5)
            made.blocks[arm] = (np.array(made.blocks[arm]) * own[:, None]).tolist()
        shifts.append(made.longer(NEW, (OLD, CONTROL)))
    told = np.sqrt(np.mean([shift.error**2 for shift in shifts]))
    assert told == pytest.approx(np.std([shift.size for shift in shifts]), rel=0.2)
    assert told == pytest.approx(0.03 * np.sqrt(1.5 / 4), rel=0.2)
