"""Times measured against a work are compared by it: the pace of the machine is not the code."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compare.files import benchmark, write

Compared = Callable[..., Any]
WORK = 5e-5
NOISE = (1.0, 1.004, 0.997)


def name(number: int) -> str:
    return f"test_time[gemm-{number}]"


def file(
    path: Path, *, pace: float = 1.0, slower: Mapping[int, float] | None = None, work: str = "w"
) -> Path:
    """Of two benchmarks in three runs each, on a machine that is slower by `pace`."""
    found = []
    for number, least in enumerate((1e-3, 2e-3)):
        seconds = [least * noise * (slower or {}).get(number, 1) for noise in NOISE]
        paced = {
            "work": work,
            "paces": [pace * WORK] * len(seconds),
            "times": [s / WORK for s in seconds],
        }
        first, *others = (pace * s for s in seconds)
        found.append(benchmark(name(number), first, control=others, paced=paced))
    return write(path, found)


def test_a_slower_machine_is_no_slower_code(tmp_path: Path, compared: Compared) -> None:
    answer = compared(file(tmp_path / "old.json"), file(tmp_path / "new.json", pace=1.3))
    assert answer.status == 0
    decision = answer.verdict(name(0), "time")
    assert decision["verdict"] == "same"
    assert decision["change"] == pytest.approx(0)
    assert answer.found["environment"]["pace (us)"] == ["50.0", "65.0"]


def test_a_faster_machine_hides_no_slowdown(tmp_path: Path, compared: Compared) -> None:
    new = file(tmp_path / "new.json", pace=0.9, slower={1: 1.1})
    answer = compared(file(tmp_path / "old.json"), new)
    assert answer.status == 1
    assert answer.verdict(name(1), "time")["verdict"] == "worse"
    assert answer.verdict(name(1), "time")["change"] == pytest.approx(0.1)
    assert answer.verdict(name(0), "time")["verdict"] == "same"


def test_times_against_another_work_are_seconds(tmp_path: Path, compared: Compared) -> None:
    new = file(tmp_path / "new.json", pace=1.3, work="another")
    answer = compared(file(tmp_path / "old.json"), new)
    assert answer.verdict(name(0), "time")["change"] == pytest.approx(0.3)
    assert answer.found["environment"]["pace of"] == ["w", "another"]


@pytest.mark.parametrize(
    ("paced", "why"),
    [
        ([], "d5test.paced is list, not an object"),
        ({"work": 3, "paces": [1], "times": [1]}, "d5test.paced has no work, paces and times"),
        ({"work": "w", "paces": [1], "times": []}, "d5test.paced has 1 paces and 0 times"),
        ({"work": "w", "paces": [], "times": []}, "d5test.paced has 0 paces and 0 times"),
        ({"work": "w", "paces": [1], "times": [0]}, "a value of d5test.paced is 0, not above"),
        ({"work": "w", "paces": ["x"], "times": [1]}, "a value of d5test.paced is 'x', not a"),
    ],
)
def test_a_pace_that_is_none_is_one_line(
    paced: Any, why: str, tmp_path: Path, compared: Compared
) -> None:
    hostile = write(tmp_path / "new.json", [benchmark(name(0), 1e-3, paced=paced)])
    answer = compared(file(tmp_path / "old.json"), hostile)
    assert answer.status == 2
    assert why in answer.err
