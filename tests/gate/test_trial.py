"""The gate's test of itself counts what it says that it counts."""

import time

import pytest

from d5test.client.messages import Round
from d5test.gate import Gate
from d5test.gate.trial import Slowed, trial
from tests.gate.versions import World


class Second:
    """Calls that take a second each."""

    def start(self, loops: int | None = None) -> int:
        return loops or 100

    def round(self) -> Round:
        return Round(1.0, 0.5, 3)

    def record(self, rounds: object, loops: int) -> dict[str, object]:
        return {"rounds": rounds, "loops": loops}

    def close(self) -> None:
        pass


@pytest.mark.parametrize("loops", [None, 70])
def test_what_is_slowed_takes_longer_in_rounds_of_the_same_length(loops: int | None) -> None:
    slowed = Slowed(Second(), 0.05)
    assert slowed.start(loops) == (loops or 100)
    assert slowed.round() == Round(1.05, 0.525, 3)


def test_a_quiet_machine_has_no_false_alarm_and_finds_everything() -> None:
    worlds = [World(seed=k) for k in range(20)]
    subjects = worlds[0].subjects(8)
    found = trial(lambda k: Gate(worlds[k].open, seed=k), subjects, time.monotonic())
    assert found.alarms == [0, 8 + 4]
    assert found.red == [0, 1]
    assert found.found == [4, 4]
    assert "4 of 4 (100.0%, [39.8%, 100.0%])" in "\n".join(found.lines())
