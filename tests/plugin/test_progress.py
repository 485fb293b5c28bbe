"""While a run goes on: faults as they are found, and a status line where there is a terminal."""

import errno
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.plugin.progress import in_words
from tests.nightly import at_night
from tests.plugin.test_suite import SUITES

Suite = Callable[..., Any]
WRONG = ("--check=forward,gradient", "--operator=Relu,Softmax", "--examples=5")
FAULT = re.compile(
    r"^fault (\d): (Relu\(\): .*) \(forward, (float\d\d)\): (\S+\.py)$", re.MULTILINE
)


@pytest.mark.parametrize("words", ["", *map(at_night, ("-v", "-q")), "-n1"])
def test_a_fault_is_a_line_when_it_is_found(suite: Suite, words: str) -> None:
    ran = suite("Wrong", *WRONG, *words.split())
    assert ran.rc == 1
    going_on, _, ended = ran.text.partition("= FAILURES =")
    lines = FAULT.findall(going_on)
    assert [number for number, *_ in lines] == ["1", "2", "3", "4"]
    assert {dtype for _, _, dtype, _ in lines} == {"float32", "float64"}
    for _, headline, _, path in lines:
        assert Path(path).is_file()
        assert headline in ended
    assert " of 7 tests" not in ran.text
    assert "\x1b" not in ran.text


def test_a_right_run_says_nothing_of_it(suite: Suite) -> None:
    ran = suite("Tiny", *WRONG)
    assert ran.rc == 0
    assert "\nfault" not in ran.text


def test_the_summary_comes_after_the_list_of_failures(suite: Suite) -> None:
    text = suite("Wrong", *WRONG).text
    assert text.index("= short test summary info =") < text.index("= d5test =")
    assert text.rindex("FAILED ") < text.index("= d5test =")


def on_terminal(folder: Path, *options: str) -> str:
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest", str(SUITES / "operators"), "-p", "no:cacheprovider"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [*command, *options], stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ):
        os.close(theirs)
        said = b""
        try:
            while some := os.read(ours, 65536):
                said += some
        except OSError as error:  # how Linux says that the other side is closed
            if error.errno != errno.EIO:
                raise
    os.close(ours)
    return said.decode()


@pytest.fixture
def folder(suite: Suite, pytester: pytest.Pytester) -> Path:
    """Where tiny.py is; `suite` wrote it, and set the paths."""
    return pytester.path


def test_a_terminal_has_a_status_line(folder: Path) -> None:
    wrong = ("--backend=./tiny.py:Wrong", *WRONG, "--junit-xml=run.xml", "-o", "junit_logging=all")
    said = on_terminal(folder, *wrong)
    going_on, _, ended = said.partition("= FAILURES =")
    assert "forward ./tiny.py:Wrong-Relu-float32" in going_on
    assert re.search(r"\d of 7 tests    2 faults in .d5test/reproducers", going_on)
    assert "test_forward.py" not in going_on.partition("collected 7 items")[2]
    assert len(re.findall(r"fault \d: Relu\(\)", going_on)) == 4
    assert "of 7 tests" not in ended
    assert "of 7 tests" not in (folder / "run.xml").read_text()
    assert going_on.count("\x1b[?25l") == going_on.count("\x1b[?25h") > 0  # the cursor is back


@pytest.mark.parametrize("option", ["-v", at_night("-s"), at_night("-q"), "--collect-only"])
def test_who_asks_for_another_output_has_it_alone(folder: Path, option: str) -> None:
    said = on_terminal(folder, "--backend=./tiny.py:Tiny", *WRONG, option)
    assert "of 7 tests" not in said
    assert "\x1b[?25l" not in said


def test_the_budget_is_what_is_left(folder: Path) -> None:
    said = on_terminal(folder, "--backend=./tiny.py:Tiny", *WRONG, "--budget=100s")
    assert "2 min of the budget left" in said or " s of the budget left" in said


def test_times_in_words() -> None:
    assert [in_words(s) for s in (3.4, 59.9, 61, 5000, 7200)] == [
        "3 s", "60 s", "1 min", "83 min", "2.0 h",
    ]  # fmt: skip
