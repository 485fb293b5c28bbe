"""Files that are no benchmark files, for the report: one line, exit status 2, no page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.cli import main
from tests.compare.files import benchmark, sides, write
from tests.compare.test_hostile import GOOD, HOSTILE
from tests.report.test_rules import step


@pytest.mark.parametrize("case", HOSTILE)
def test_one_line_and_status_2(case: str, tmp_path: Path, made: Callable[..., Any]) -> None:
    content, words = HOSTILE[case]
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(GOOD)
    bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    for arguments in ((good, bad), (bad,)):
        found = made(*arguments)
        assert (found.status, found.out, found.path.exists()) == (2, "", False)
        (line,) = found.err.splitlines()
        assert line.startswith(f"d5test report: {bad}: ")
        assert words in line


EXTREME: dict[str, Callable[[Any, Any], None]] = {
    "a load without end": lambda e, s: e["d5test"]["environment"].update(load=[10**400]),
    "half a rank": lambda e, s: s.update(ranks=0.5),
    "a huge rank": lambda e, s: s.update(ranks=1e308, samples_per_second=1e308),
    "as many products": lambda e, s: e["d5test"].update(multiplications=10**308),
    "a surrogate": lambda e, s: e["d5test"].update(operator="\ud800", dtype="\x00"),
}


@pytest.mark.parametrize("case", EXTREME)
def test_what_is_strange_is_shown(case: str, tmp_path: Path, made: Callable[..., Any]) -> None:
    given = benchmark("b", 1e-3, control=[1e-3, 1.1e-3]), step(2)
    old = write(tmp_path / "old.json", given)
    EXTREME[case](given[0]["extra_info"], given[1]["extra_info"]["scaling"])
    new = write(tmp_path / "new.json", given)
    for versions in ((old, new), (new,)):
        found = made(*versions)
        assert (found.status, found.err) == (0, "")
        assert main(["verify", str(found.path)]) == 0


IMPLAUSIBLE: dict[str, Callable[[Any], None]] = {
    "more preempted rounds than any": lambda e: e.update(preempted_rounds=10**400),
    "less than none": lambda e: e.update(preempted_rounds=-1),
    "an age": lambda e: e.update(control=[1e-300, 1e300]),
}


@pytest.mark.parametrize("case", IMPLAUSIBLE)
def test_what_no_clock_gives_is_refused(
    case: str, tmp_path: Path, made: Callable[..., Any]
) -> None:
    given = benchmark("b", 1e-3, control=[1e-3, 1.1e-3])
    old = write(tmp_path / "old.json", [given])
    IMPLAUSIBLE[case](given["extra_info"]["d5test"])
    new = write(tmp_path / "new.json", [given])
    for versions in ((old, new), (new,)):
        found = made(*versions)
        assert (found.status, found.out, found.path.exists()) == (2, "", False)
        (line,) = found.err.splitlines()
        assert line.startswith(f"d5test report: {new}: benchmark 'b': ")


def test_rounds_that_are_no_rounds(tmp_path: Path, made: Callable[..., Any]) -> None:
    odd = benchmark("odd", 1e-3)
    odd["stats"]["data"] = {"count": 7, "some": "?"}
    found = made(write(tmp_path / "bad.json", [odd]))
    assert found.status == 2
    assert "its rounds are damaged" in found.err


@pytest.mark.parametrize("output", ["missing/report.html", "."])
def test_where_nothing_can_be_written(
    output: str, tmp_path: Path, made: Callable[..., Any]
) -> None:
    found = made(*sides(tmp_path), "-o", tmp_path / output)
    assert found.status == 2
    (line,) = found.err.splitlines()
    assert line.startswith(f"d5test report: {tmp_path / output}: ")
