"""Values that nothing can have measured: refused with the file, the benchmark and the value.

A regression is planted in one benchmark; a value in another benchmark of one new file is all that
is changed. It must never turn the verdict.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.compare.noise import shifts
from d5test.compare.numbers import SPREAD, Unreadable, number
from d5test.report import Report, page
from tests.compare.files import RIGHT, benchmark, name, plain, write

Compared = Callable[..., Any]
NONE = float("nan")
VALUES = (
    5e-324, 1e-310, 1e-300, 1e-101, 1e-12, 9.9e-10, 0, -1e-3, -5e-324, 1.1e7, 1e101, 1.7e308,
    10**400, -(10**400), NONE, float("inf"), float("-inf"), "1e-3", None, True, [], {},
)  # fmt: skip
PACE = 5e-5
Set = Callable[[dict[str, Any], Any], None]


def paced(entry: dict[str, Any], times: Any, paces: Any) -> None:
    entry["extra_info"]["d5test"]["paced"] = {"work": "w", "paces": paces, "times": times}


def into(*path: str) -> Set:
    def put(entry: dict[str, Any], value: Any) -> None:
        at: Any = entry
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return put


RECORD = ("extra_info", "d5test")
TIMES: dict[str, Set] = {
    "stats.min": into("stats", "min"),
    "control": lambda entry, value: into(*RECORD, "control")(entry, [value]),
    "paced.times": lambda entry, value: paced(entry, [value], [PACE]),
    "paced.paces": lambda entry, value: paced(entry, [1e-3 / PACE], [value]),
}
OTHERS: dict[str, Set] = {
    "stats.rounds": into("stats", "rounds"),
    "loops": into(*RECORD, "loops"),
    "preempted_rounds": into(*RECORD, "preempted_rounds"),
    "judgement.ratio": into(*RECORD, "judgement", "ratio"),
    "judgement.share": into(*RECORD, "judgement", "share"),
    "ratio_resolution": into(*RECORD, "ratio_resolution"),
    "memory.resident": into(*RECORD, "memory", "resident"),
    "memory.device": into(*RECORD, "memory", "device"),
    "control_resident": lambda entry, value: into(*RECORD, "control_resident")(entry, [value]),
    "a stranger's noise": lambda entry, value: into("extra_info", "metrics")(
        entry, [{"name": "m", "unit": "1", "better": "lower", "gate": "noise", "values": [value]}]
    ),
    "a stranger's count": lambda entry, value: into("extra_info", "metrics")(
        entry, [{"name": "m", "unit": "1", "better": "lower", "gate": "exact", "values": [value]}]
    ),
    "a stranger's tolerance": lambda entry, value: into("extra_info", "metrics")(
        entry,
        [{"name": "m", "unit": "1", "better": "lower", "gate": "exact", "values": [1],
          "tolerance": value}],
    ),
}  # fmt: skip


def file(path: Path, slower: float, put: Set | None = None, value: Any = None) -> Path:
    """Two benchmarks, the first slower by so much; `value` is put into the second."""
    noise = np.random.default_rng(sum(path.stem.encode())).normal(1, 0.002, 2)
    found = [
        deepcopy(benchmark(name(b), 1e-3 * factor * float(error), shapes=[[3, 5 + b]]))
        for b, (factor, error) in enumerate(zip((slower, 1), noise, strict=True))
    ]  # fmt: skip
    if put is not None:
        put(found[1], value)
    return write(path, found)


def sides(folder: Path, put: Set, value: Any) -> tuple[str, str]:
    for k in range(3):
        file(folder / f"old{k}.json", 1)
        file(folder / f"new{k}.json", 1.3, *((put, value) if k == 1 else ()))
    return str(folder / "old*"), str(folder / "new*")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:10])
@pytest.mark.parametrize("what", TIMES)
def test_no_time_hides_a_regression(
    what: str, value: Any, tmp_path: Path, compared: Compared
) -> None:
    answer = compared(*sides(tmp_path, TIMES[what], value))
    assert (answer.status, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert line.startswith(f"d5test compare: {tmp_path}/new1.json: benchmark ")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:10])
@pytest.mark.parametrize("what", OTHERS)
def test_no_number_hides_a_regression(
    what: str, value: Any, tmp_path: Path, compared: Compared
) -> None:
    answer = compared(*sides(tmp_path, OTHERS[what], value))
    assert answer.status in (1, 2)
    if answer.status == 1:
        assert answer.found["verdict"] == "regressed"
        assert answer.verdict(name(0), "time")["verdict"] == "worse"
    else:
        (line,) = answer.err.splitlines()
        assert line.startswith(f"d5test compare: {tmp_path}/")


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("stats.min", 5e-324, "stats.min is 4.94066e-324; nothing is smaller than 1e-100"),
        ("stats.min", 1e-12, "stats.min is 1e-12 s; no clock gives that of a call (1e-09 to"),
        ("control", 1e300, "a control time is 1e+300; nothing is larger than 1e+100"),
        ("control", 2e-9, "'time' is 2e-09, and 0.000998851 in the median of its version's runs"),
        ("paced.times", 1e-300, "a value of d5test.paced is 1e-300; nothing is smaller"),
        ("paced.times", 1e-7, "(1e-07 times 5e-05 s) is 5e-12 s; no clock gives that"),
        ("paced.times", 1e-3, "a value of d5test.paced is 0.001 times 5e-05 s: by the clock"),
    ],
)
def test_the_line_says_what_is_wrong(
    what: str, value: float, words: str, tmp_path: Path, compared: Compared
) -> None:
    answer = compared(*sides(tmp_path, TIMES[what], value))
    assert answer.status == 2
    assert f"{tmp_path}/new1.json: benchmark {name(1)!r}: " in answer.err
    assert words in answer.err


@pytest.mark.parametrize(
    ("what", "value", "words"),
    [
        ("loops", 0, "d5test.loops is 0, not from 1 to"),
        ("preempted_rounds", 8, "d5test.preempted_rounds is 8, not from 0 to 7"),
        ("preempted_rounds", 1.5, "d5test.preempted_rounds is 1.5, not a whole number"),
        ("judgement.ratio", -0.1, "d5test.judgement.ratio is -0.1, not from 0 to inf"),
        ("judgement.ratio", 2, "it is called right with an error of 2 bars"),
        ("judgement.share", 1.5, "d5test.judgement.share is 1.5, not from 0 to 1"),
        ("ratio_resolution", 0.5, "d5test.ratio_resolution is 0.5, not from 0 to 1.86265e-09"),
        (
            "memory.resident",
            1e8 / SPREAD / 2,
            "'resident memory' is 50000, and 1e+08 in the median of",
        ),
        ("memory.device", -1, "d5test.memory.device is -1, not from 0 to"),
        ("stats.rounds", 6.5, "stats.rounds is 6.5, not a whole number"),
    ],
)
def test_numbers_have_ranges(
    what: str, value: float, words: str, tmp_path: Path, compared: Compared
) -> None:
    answer = compared(*sides(tmp_path, OTHERS[what], value))
    assert answer.status == 2
    assert words in answer.err


def test_a_strangers_tolerance_is_not_widened_by_one_file(
    tmp_path: Path, compared: Compared
) -> None:
    rows = {"name": "rows", "unit": "1", "better": "lower", "gate": "exact", "tolerance": 1}
    for side, counted, tolerance in (("old", 100, 1), ("new", 200, 1000)):
        metric = {**rows, "values": [counted], "tolerance": tolerance}
        write(tmp_path / f"{side}.json", [plain("sum", 1e-3, metrics=[metric])])
    answer = compared(tmp_path / "old.json", tmp_path / "new.json")
    assert answer.status == 2
    assert "runs disagree on what 'rows' is" in answer.err


def test_a_wrong_result_may_be_off_by_any_number_of_bars(
    tmp_path: Path, compared: Compared
) -> None:
    wrong = {**RIGHT, "right": False, "ratio": 1e300}
    for side, judgement in (("old", RIGHT), ("new", wrong)):
        write(tmp_path / f"{side}.json", [benchmark(name(0), 1e-3, judgement=judgement)])
    answer = compared(tmp_path / "old.json", tmp_path / "new.json")
    assert answer.status == 1
    assert answer.verdict(name(0), "right")["verdict"] == "worse"


@pytest.mark.parametrize("value", [np.inf, 1e200])
def test_a_limit_that_is_no_number_is_an_error(value: float) -> None:
    logs = np.zeros((3, 4))
    logs[1, 3] = value
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError):
        shifts(logs[:, :2], logs[:, 2:], 0.05)


def test_a_page_is_refused_too(tmp_path: Path) -> None:
    from d5test.compare import read_sides

    old, new = sides(tmp_path, TIMES["control"], 2e-9)
    with pytest.raises(Unreadable, match="never differ by a factor of 1000"):
        page(Report(*read_sides([old, new])))


def test_a_number_is_bounded_on_both_sides() -> None:
    assert number(-1e100, "x") == -1e100
    for beyond in (1.01e100, -1.01e100):
        with pytest.raises(Unreadable, match="nothing is larger"):
            number(beyond, "x")
