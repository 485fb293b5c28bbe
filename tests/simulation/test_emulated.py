"""A machine that is emulated by sleeping is never faster than it is simulated to be."""

import pytest

from tests.simulation.emulated import seconds, simulated


@pytest.mark.parametrize(
    ("algorithm", "size"), [("ring", 3), ("halving_doubling", 4), ("pipelined", 3)]
)
def test_nobody_sleeps_too_little(algorithm: str, size: int) -> None:
    assert seconds(algorithm, size, 2**18) >= simulated(algorithm, size, 2**18)
