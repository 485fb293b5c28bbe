"""What is timed on many ranks is gated by whole runs of both versions, in turns."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from d5test.arguments import Mistake
from d5test.cli import main
from d5test.gate import alternating
from d5test.gate.alternating import RUNS, Alternating
from tests.distributed.test_mpi import MPIRUN

BOTH = (f"--old={sys.executable}", f"--new={sys.executable}")


class Fake:
    """Runs nothing: each run takes so many seconds of a clock, and ends so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
        self.status, self.now, self.asked = status, 0.0, list[str]()
        monkeypatch.setattr(alternating, "subprocess", self)
        monkeypatch.setattr(alternating, "time", SimpleNamespace(monotonic=lambda: self.now))

    STDOUT, DEVNULL = subprocess.STDOUT, subprocess.DEVNULL

    def run(self, command: list[str], **options: Any) -> Any:
        if command[1] == "-c":
            return SimpleNamespace(returncode=0)
        self.now += 10
        self.asked.append(command[0])
        if self.status < 2:
            Path(command[-1].partition("=")[2]).write_text("{}")
        else:
            options["stdout"].write("collected\nERROR: unknown operator 'Nope'\n\nlast line\n")
        return SimpleNamespace(returncode=self.status)


def runs(tmp_path: Path, budget: float | None = None) -> Alternating:
    return Alternating({"old": "OLD", "new": "NEW"}, ("--np=2",), tmp_path, budget)


def test_neither_version_is_always_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    files = runs(tmp_path).measured()
    assert fake.asked == ["OLD", "NEW", "NEW", "OLD", "OLD", "NEW"]
    for side in ("old", "new"):
        assert files[side] == [tmp_path / f"{side}-{k}.json" for k in range(1, RUNS + 1)]


@pytest.mark.parametrize(("budget", "count"), [(1.0, 2), (59.0, 2), (60.0, 3), (None, 3)])
def test_a_budget_is_kept_but_for_two_runs_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float | None, count: int
) -> None:
    Fake(monkeypatch)
    assert len(runs(tmp_path, budget).measured()["old"]) == count


def test_a_run_that_times_nothing_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(monkeypatch, status=4)
    with pytest.raises(Mistake, match=r"run 1 of the old .*status 4.* operator 'Nope'; see"):
        runs(tmp_path).measured()


def test_files_of_an_earlier_gate_are_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old-1.json").write_text("{}")
    Fake(monkeypatch, status=6)
    with pytest.raises(Mistake, match="timed nothing"):
        runs(tmp_path).measured()
    assert not (tmp_path / "old-1.json").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((*BOTH, "--", "distributed"), "say on how many ranks: -- distributed --np=4"),
        (
            (*BOTH, "--accept=a.toml", "--", "distributed", "--np=2"),
            "--accept are for what",
        ),
        (("--old=./a.py:A", BOTH[1], "--", "distributed", "--np=2"), "./a.py:A is a backend"),
        (("--old=/no/python", BOTH[1], "--", "distributed", "--np=2"), "no interpreter"),
        ((BOTH[0], "--", "distributed", "--np=2"), "give both versions"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_an_environment_without_d5test_is_said_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(Mistake, match=r"the new version, .*No module named .*pip install"):
        Alternating({"old": sys.executable, "new": str(bare)}, (), tmp_path).measured()
    assert not [*tmp_path.glob("*.json")]


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
def test_the_same_code_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = ("--comm=mpi", "-k", "test_allreduce and ring and 16384", "--benchmark-min-rounds=5")
    words = (*BOTH, "--effect=90%", "--report=page.html", "--", "distributed", "--np=2", *chosen)
    assert main(["gate", *words]) == 0
    printed = capsys.readouterr().out
    assert printed.count("run 3: ") == 2
    assert "vanished" not in printed
    assert (tmp_path / "page.html").stat().st_size > 10_000
    timed = json.loads((tmp_path / ".d5test" / "gate" / "new-2.json").read_text())["benchmarks"]
    assert len(timed) == 1
