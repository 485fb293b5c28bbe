"""`d5test gate` on the corpus, as it is typed: worse by name, healthy, left out, out of time."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from d5test.cli.gate import arguments, declare
from d5test.files import folder_of_suites
from d5test.report import verify
from tests.compare.coarse import CONV

pytest.importorskip("torch")

MINE = (
    """
from dataclasses import replace

import torch
from d5test.backends.torch import Torch
"""
    + CONV
    + """
class Old(Torch):
    rows = {name: Torch.rows[name] for name in ("Relu", "Neg")}
    rows["Conv"] = replace(Torch.rows["Conv"], call=fine)

class Coarse(Torch):
    rows = {
        "Conv": replace(Torch.rows["Conv"], call=coarse),
        "Relu": replace(Torch.rows["Relu"], call=lambda op, x: x.clamp(min=0) * 1.5),
        "Neg": replace(Torch.rows["Neg"], call=lambda op, x: 1 // 0),
    }
"""
)
OPERATORS = "--operator=Conv,Relu,Neg"
DTYPES = "--dtype=float32,bfloat16"


@pytest.fixture
def gate(tmp_path: Path):
    """Call it with the new version, the suite and arguments."""
    (tmp_path / "mine.py").write_text(MINE)

    def run(new: str, suite: str, *given: str, options: tuple[str, ...] = ()):
        words = [sys.executable, "-c", "from d5test.cli import main; exit(main())", "gate"]
        versions = ["--old=./mine.py:Old", f"--new=./mine.py:{new}", *options]
        tests = [suite, "--threads=1", "--junit-xml=run.xml", *given]
        return subprocess.run(
            [*words, *versions, "--", *tests],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip

    return run


def failures(folder: Path) -> dict[str, str]:
    """The text of each failed test in JUnit's file, by the case."""
    cases = ET.parse(folder / "run.xml").iter("testcase")
    return {
        str(case.get("name")).partition("[")[2].rpartition("-./")[0]: failure.text or ""
        for case in cases
        for failure in case.iter("failure")
    }


@pytest.mark.nightly
def test_a_healthy_version_passes(gate, tmp_path: Path) -> None:
    ran = gate("Old", "operators/test_corpus.py", OPERATORS, DTYPES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "42 passed" in ran.stdout
    assert "corpus: 42 cases judged in both versions" in ran.stdout
    assert f"PASSED: nothing is worse; 0 better, {42 * 3 + 18} the same, 0 unsure" in ran.stdout
    sides = [json.loads((tmp_path / ".d5test" / "gate" / f"{side}-1.json").read_text())
             for side in ("old", "new")]  # fmt: skip
    judged = [[b["extra_info"]["d5test"]["judgement"] for b in s["benchmarks"]] for s in sides]
    assert judged[0] == judged[1]
    assert len(judged[0]) == 42


def test_what_computes_worse_is_worse_by_name(gate, tmp_path: Path) -> None:
    page = "page.html"
    ran = gate(
        "Coarse", "operators/test_corpus.py", OPERATORS, DTYPES, options=(f"--report={page}",)
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    found = failures(tmp_path)
    assert not verify((tmp_path / page).read_text()).differences

    summed = {case: text for case, text in found.items() if case.startswith("Conv")}
    assert "(F -> P), exact" in summed["Conv-bfloat16-1-forward"]
    assert all("arithmetic class of Conv-bfloat16" in text for text in summed.values())
    table = [row for row in ran.stdout.splitlines() if row.strip().startswith("worse")]
    assert sum("arithmetic class of Conv" in row for row in table) == len(summed) >= 3

    wrong = {case: text for case, text in found.items() if case.startswith("Relu")}
    assert set(wrong) == {
        f"Relu-{dtype}-{k}-{direction}"
        for dtype, count in (("float32", 4), ("bfloat16", 3))
        for k in range(count)
        for direction in ("forward", "backward")
    }
    assert "(right -> wrong)" in wrong["Relu-float32-0-forward"]
    assert "where none is allowed" in wrong["Relu-float32-0-forward"]
    path = wrong["Relu-float32-0-forward"].partition("reproducer: ")[2].split()[0]
    assert (tmp_path / path).is_file()

    gone = found["Neg-float32-0-forward"]
    assert gone.startswith("the new version: Neg(): the backend's row raised ZeroDivisionError")
    assert "operator lost: Neg" in ran.stdout
    (line,) = (s for s in ran.stdout.splitlines() if "not judged in both versions" in s)
    assert line.startswith("corpus: 21 cases ")  # 14 of Neg, and 7 gradients of a wrong Relu
    assert "Neg(): the backend's row raised" in line


@pytest.mark.nightly
def test_it_is_in_a_run_of_the_suite_unless_it_is_left_out(gate, tmp_path: Path) -> None:
    quick = ("operators", "--operator=Relu", "--dtype=float32", "-k")
    ran = gate("Old", *quick, "not corpus", "--collect-only", "-q")
    assert ran.returncode in (0, 2), ran.stdout + ran.stderr
    assert "test_corpus" not in ran.stdout
    ran = gate("Old", *quick, "forward")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "corpus: 4 cases judged in both versions" in ran.stdout
    assert f"PASSED: nothing is worse; 0 better, {4 * 3} the same, 0 unsure" in ran.stdout


@pytest.mark.nightly
def test_what_there_was_no_time_for_is_told(gate) -> None:
    quick = ("operators/test_corpus.py", "--operator=Relu", "--dtype=float32")
    ran = gate("Old", *quick, options=("--budget=0.001s", "--unsure=fail"))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "8 failed" in ran.stdout
    assert "unsure: not measured: the budget was spent" in ran.stdout
    assert "nothing was compared" in ran.stdout


@pytest.mark.parametrize(
    ("given", "files"),
    [
        (["operators"], ["operators/test_time.py", "operators/test_corpus.py"]),
        (["operators/test_time.py"], ["operators/test_time.py"]),
        (["operators/test_corpus.py"], ["operators/test_corpus.py"]),
        (["networks"], ["networks/test_time.py"]),
        (["--self-test", "operators"], ["operators/test_time.py"]),
    ],
)
def test_what_is_gated_of_a_suite(given: list[str], files: list[str]) -> None:
    parser = argparse.ArgumentParser()
    declare(parser)
    found = arguments(parser.parse_args(["--old=old", "--new=new", *given]))
    assert [path for path in found if path.endswith(".py")] == [
        str(folder_of_suites() / file) for file in files
    ]
