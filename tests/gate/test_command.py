"""`d5test gate` as it is typed, on backends in a file; nothing here depends on a time."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from d5test.cli import main
from d5test.report import verify
from tests.nightly import thinned

ROOT = Path(__file__).parents[2]
MINE = """
import numpy as np
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

none = "no gradient here"


class Old(Numpy):
    framework = "mine"
    rows = {"Gemm": Row(lambda op, a, b: a @ b, gradient=none)}


class Same(Old):
    pass


class Lossy(Old):
    rows = {"Gemm": Row(lambda op, a, b: (a @ b) * np.float32(1 + 2**-22), gradient=none)}


class Lost(Old):
    rows = {}


class Gone(Old):
    def __init__(self, *given):
        raise ImportError("libmine.so.3: cannot open shared object file")
"""
SURE = ("--effect=90%",)
"""No machine is so noisy that identical code is slower by half of that."""


@pytest.fixture
def gate(tmp_path: Path):
    """Call it with the new version and arguments."""
    (tmp_path / "mine.py").write_text(MINE)

    def run(new: str, *options: str, suite: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        words = [sys.executable, "-c", "from d5test.cli import main; exit(main())", "gate"]
        versions = ["--old=./mine.py:Old", f"--new={new}", *options]
        times = ["operators/test_time.py", "--operator=Gemm", "-k", "forward"]
        tests = [*times, "--junit-xml=run.xml", *suite]
        return subprocess.run(
            [*words, *versions, "--", *tests],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    return run


@pytest.mark.nightly
def test_the_same_code_passes(gate, tmp_path: Path) -> None:
    ran = gate("./mine.py:Same", *SURE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
    properties = {p.get("name") for p in ET.parse(tmp_path / "run.xml").iter("property")}
    assert "d5test-gate" in properties
    assert (tmp_path / ".d5test" / "gate" / "control-1.json").is_file()


def test_lost_accuracy_is_a_failed_test_with_its_name(gate, tmp_path: Path) -> None:
    ran = gate("./mine.py:Lossy", *SURE, "--report=page.html")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "REGRESSED" in ran.stdout
    assert not verify((tmp_path / "page.html").read_text()).differences
    failures = [f.text or "" for f in ET.parse(tmp_path / "run.xml").iter("failure")]
    assert len(failures) == 2
    assert all("error / bar of gemm-" in text for text in failures)


def test_a_lost_operator_is_named(gate) -> None:
    ran = gate("./mine.py:Lost", *SURE)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "has no row for Gemm" in ran.stdout
    assert "operator lost: Gemm" in ran.stdout


def test_what_cannot_be_imported_is_a_regression_with_the_reason(gate) -> None:
    ran = gate("./mine.py:Gone", *SURE)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "libmine.so.3" in ran.stdout


@pytest.mark.nightly
def test_a_slowdown_that_is_accepted_is_read_from_a_file(gate, tmp_path: Path) -> None:
    (tmp_path / "accepted.toml").write_text(
        '[[accepted]]\nbenchmark = "another"\nmetric = "time"\nup_to = 0.1\nreason = "it is new"\n'
        'owner = "me"\nexpires = 2999-01-01\n'
    )
    ran = gate("./mine.py:Same", *SURE, "--accept=accepted.toml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "accepted, and not measured: another" in ran.stdout


def test_a_gate_that_compared_nothing_has_not_passed(gate) -> None:
    ran = gate("./mine.py:Same", *SURE, suite=("-k", "backward"))
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "nothing was compared" in ran.stdout


@pytest.mark.parametrize(
    ("new", "options", "suite", "why"),
    thinned(
        [
            ("/no/such/python", (), (), "no interpreter '/no/such/python'"),
            ("./none.py:Mine", (), (), "there is no file"),
            ("./mine.py:Smae", (), (), "Smae"),
            ("./mine.py:Same", ("--accept=none.toml",), (), "none.toml: No such file"),
            ("./mine.py:Same", ("--budget=abc",), (), "expected a time such as 90s, 2m or 1h30m"),
            ("./mine.py:Same", (), ("-n2",), "leave out -n"),
            ("./mine.py:Same", (), ("--in-process",), "leave out --in-process"),
            ("./mine.py:Same", (), ("--operator=Gem",), "did you mean Gemm"),
        ]
    ),
)
def test_a_mistake_is_one_line(
    gate, new: str, options: tuple[str, ...], suite: tuple[str, ...], why: str
) -> None:
    ran = gate(new, *options, suite=suite)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    (line,) = [line for line in ran.stderr.splitlines() if line.strip()]
    assert why in line
    assert "Traceback" not in ran.stdout + ran.stderr


def test_two_versions_are_needed() -> None:
    words = [sys.executable, "-c", "from d5test.cli import main; exit(main())", "gate"]
    ran = subprocess.run(
        [*words, "--old=a", "operators"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert "--new" in ran.stderr


@pytest.mark.parametrize("page", ["missing/report.html", "."])
def test_where_no_page_can_be_written_is_told_before_anything_is_measured(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--old=./mine.py:Old", "--new=./mine.py:Same", f"--report={page}"]
    assert main(["gate", *given, "--", "operators"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"d5test gate: --report={page}: no file can be written there"
