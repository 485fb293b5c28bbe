"""A process beside a rank: what it tells when the rank cannot."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.distributed import sentry
from d5test.distributed.sentry import story
from d5test.distributed.watchdog import position
from d5test.plugin.communicators import AWAKE, _kind

START: dict[str, Any] = {"rank": 2, "pid": 0, "doing": "a.py::t (call)", "at": "a.py:7 in t"}


def told(*said: dict[str, Any], cut: bytes = b"") -> str:
    """What a sentry prints when its rank has said this, and is gone."""
    theirs, ours = os.pipe()
    command = [sys.executable, "-I", "-S", sentry.__file__, str(theirs)]
    with subprocess.Popen(command, pass_fds=(theirs,), stderr=subprocess.PIPE) as process:
        os.close(theirs)
        for line in said:
            os.write(ours, json.dumps(line).encode() + b"\n")
        os.write(ours, cut)
        os.close(ours)
        _, error = process.communicate(timeout=30)
    return error.decode()


def test_a_rank_that_dies_is_named_with_its_test_and_line() -> None:
    words = told(START, {"at": "a.py:9 in t: x = f(y)"}, cut=b'{"at": "half a li')
    assert "a.py::t (call): rank 2 died" in words
    assert "  rank 2 stood at a.py:9 in t: x = f(y)" in words


def test_a_rank_that_ends_in_order_is_not_spoken_of(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    where = {"folder": str(tmp_path / "run"), "supervised": False}
    assert told(START | where, {"limit": 30.0, "done": True}) == ""
    assert not (tmp_path / "run").exists()


def test_a_rank_that_stays_too_long_is_killed_and_named() -> None:
    theirs, ours = os.pipe()
    command = [sys.executable, "-I", "-S", sentry.__file__, str(theirs)]
    with (
        subprocess.Popen(["sleep", "600"]) as rank,
        subprocess.Popen(command, pass_fds=(theirs,), stderr=subprocess.PIPE) as process,
    ):
        os.close(theirs)
        said = START | {"pid": rank.pid, "limit": 0.2}
        os.write(ours, json.dumps(said).encode() + b"\n")
        assert rank.wait(30) == -signal.SIGKILL
        os.close(ours)  # as the death of a real rank does
        _, error = process.communicate(timeout=30)
    assert b"a.py::t (call): not over after 0.2 s, so rank 2 was killed" in error


def test_under_a_supervisor_it_writes_and_does_not_speak(tmp_path: Path) -> None:
    where = {"folder": str(tmp_path), "supervised": True}
    assert told(START | where, {"leaving": "os._exit"}) == ""
    (end,) = sentry.read(tmp_path / sentry.ENDS)
    assert (end["rank"], end["leaving"]) == (2, "os._exit")


def test_who_waits_too_long_is_not_to_blame() -> None:
    waits = START | {"killed": "not over after 18 s", "waiting": True}
    others = [
        START | {"rank": 0, "waiting": True},
        START | {"rank": 1, "doing": "a.py::t (setup)"},
    ]
    assert story([waits, *others]).splitlines()[0] == (
        "a.py::t (call): not over after 18 s: rank 2 waited for rank 1"
    )


def test_what_is_said_too_late_does_not_count() -> None:
    words = told(START | {"stage": 2}, {"at": "a.py:1 in old", "stage": 1})
    assert "  rank 2 stood at a.py:7 in t" in words


@pytest.mark.parametrize(
    ("cause", "head"),
    [
        ({}, "a.py::t (call): rank 0 died"),
        ({"leaving": "os.abort"}, "a.py::t (call): rank 2 left by os.abort"),
        ({"killed": "nobody knows why"}, "a.py::t (call): nobody knows why, so rank 2 was killed"),
    ],
)
def test_the_cause_comes_before_the_order_in_which_ranks_died(cause: Any, head: str) -> None:
    others = [START | {"rank": rank, "at": f"a.py:{rank}"} for rank in (0, 3, 1)]
    lines = story([others[0], START | cause, *others[1:]]).splitlines()
    assert lines[0] == head
    assert sorted(lines[2:]) == lines[2:]
    assert len(lines) == 5


def test_where_a_rank_stands_is_told_of_its_test_and_of_the_innermost_line() -> None:
    def hidden() -> str:
        __tracebackhide__ = True
        return position(sys._getframe(), "nowhere.py")

    def outer(call: Callable[[], str]) -> str:
        return call()

    line = outer.__code__.co_firstlineno + 1
    assert hidden.__code__.co_varnames == ("__tracebackhide__",)
    assert outer(hidden).endswith(f"test_sentry.py:{line} in outer: return call()")
    scope: dict[str, Any] = {"position": position, "sys": sys, "file": __file__}
    exec("def other():\n    return position(sys._getframe(), file)", scope)
    assert outer(scope["other"]).endswith(
        f":{line} in outer: return call(), in <string>:2 in other: "
    )


@pytest.mark.parametrize(("says", "watched"), [("polls = True", True), ("pass", False)])
def test_a_communicator_of_a_stranger_says_whether_it_polls(
    tmp_path: Path, says: str, watched: bool
) -> None:
    (tmp_path / "mine.py").write_text(f"class Mine:\n    {says}\n")
    marks = _kind(f"{tmp_path}/mine.py:Mine").marks
    assert marks == ((AWAKE,) if watched else ())
