"""Files that are no benchmark files, for the report: one line, exit status 2, no page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compare.files import benchmark, sides, write
from tests.compare.test_hostile import GOOD, HOSTILE


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
