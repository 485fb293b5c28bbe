"""What rounds say: nothing of identical code, whatever disturbs them."""

from __future__ import annotations

import numpy as np
import pytest

from d5test.gate.evidence import time_blocks
from d5test.gate.session import Bout
from d5test.gate.versions import ARMS, CONTROL, NEW, OLD


def bout(slower: float, noise: float, seed: int = 0) -> Bout:
    """Many blocks, whose rounds others make longer, each by a layout of its own."""
    draw = np.random.default_rng(seed)
    blocks = {}
    for arm in ARMS:
        rounds = 1 + noise * draw.exponential(size=(400, 12))
        rounds *= np.exp(draw.normal(0, 0.03, (400, 1))) * (slower if arm == NEW else 1)
        blocks[arm] = rounds.tolist()
    return Bout(blocks=blocks)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("slower", [1.0, 1.05])
def test_skewed_noise_shifts_nothing(slower: float, noise: float) -> None:
    shift = np.median(time_blocks(bout(slower, noise), NEW, OLD, CONTROL))
    assert shift == pytest.approx(np.log(slower), abs=0.03 * max(noise, 0.3))


def test_arms_that_were_disturbed_at_the_same_time_say_nothing_of_it() -> None:
    found = bout(1.0, 0.0)
    load = np.random.default_rng(1).uniform(1, 3, (400, 12))
    for arm in ARMS:
        found.blocks[arm] = (np.array(found.blocks[arm]) * load).tolist()
    assert np.median(time_blocks(found, NEW, OLD)) == pytest.approx(0, abs=0.01)
