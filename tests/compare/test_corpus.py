"""Accuracy on the corpus: gated exactly, without times, from the suite to the verdict."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from d5test.compare.reading import read
from tests.compare.coarse import CONV
from tests.compare.files import RIGHT, benchmark, name, plain, record, write

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "d5test" / "compare" / "schema.json").read_text())
Compared = Callable[..., Any]

BOTH = (
    """
from dataclasses import replace

import torch
from d5test.backends.torch import Torch
"""
    + CONV
)
HONEST = (
    BOTH
    + """
class Mine(Torch):
    rows = {name: Torch.rows[name] for name in ("Relu", "Neg")}
    rows["Conv"] = replace(Torch.rows["Conv"], call=fine)
"""
)
COARSE = (
    BOTH
    + """
class Mine(Torch):
    rows = {
        "Conv": replace(Torch.rows["Conv"], call=coarse),
        "Relu": replace(Torch.rows["Relu"], call=lambda op, x: x.clamp(min=0) / 0),
        "Neg": replace(Torch.rows["Neg"], call=lambda op, x: 1 // 0),
    }
"""
)
TIMES = (
    "seconds", "cpu", "preempted", "preempted_rounds", "loops", "output_bytes", "memory", "cold",
    "control", "control_resident", "paced", "valid", "median", "median_interval_95",
    "flop_per_second", "bytes_per_second",
)  # fmt: skip


def judged(data: str = "da7a", **changed: Any) -> dict[str, Any]:
    """A record of a case of the corpus."""
    found = {k: v for k, v in record(1e-3, **changed).items() if k not in TIMES}
    return {**found, "corpus": {"version": 1, "hash": "c0ffee", "data": data}}


def file(path: Path, *records: Mapping[str, Any], seconds: float = 1e-3) -> Path:
    """A file of cases; judging each took so long."""
    return write(path, [plain(name(k), seconds, d5test=r) for k, r in enumerate(records)])


def run(pytester: pytest.Pytester, source: str, path: str) -> pytest.RunResult:
    pytester.makepyfile(mine=source)
    return pytester.runpytest_subprocess(
        f"{ROOT}/suites/operators/test_corpus.py", "--backend=./mine.py:Mine",
        "--operator=Conv,Relu,Neg", "--dtype=float32,bfloat16", f"--benchmark-json={path}",
    )  # fmt: skip


@pytest.mark.nightly
def test_builds_are_compared(pytester: pytest.Pytester, compared: Compared) -> None:
    for path in ("old.json", "same.json"):
        result = run(pytester, HONEST, path)
        result.assert_outcomes(passed=42)
        judged = "*Mine bfloat16: 18 judged, 18 of class F;*"
        result.stdout.fnmatch_lines(["*corpus [0-9]* (*", judged])
        result.stdout.no_fnmatch_line("*benchmark: * tests*")
    content = json.loads(Path("old.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    (old,) = read("old.json")
    assert {m for e in old.entries.values() for m in e.samples} == {
        "right", "error / bar", "share judged", "arithmetic class",
    }  # fmt: skip
    reader = [sys.executable, "-m", "pytest_benchmark", "compare", "old.json"]
    assert subprocess.run(reader, capture_output=True, check=False).returncode == 0

    same = compared("old.json", "same.json")
    assert (same.status, same.found["verdict"]) == (0, "passed")
    assert {v: n for v, n in same.found["counts"].items() if n} == {"same": 42 * 3 + 18}

    run(pytester, COARSE, "new.json").assert_outcomes(passed=14, failed=21, skipped=7)
    new = compared("old.json", "new.json")
    assert new.status == 1
    worse = [d for d in new.found["decisions"] if d["verdict"] == "worse"]
    metrics = {(d["benchmark"].partition("[")[2][:11], d["metric"]["name"]) for d in worse}
    assert metrics == {
        ("Conv-bfloat", "arithmetic class"), ("Relu-bfloat", "arithmetic class"),
        ("Relu-bfloat", "right"), ("Relu-float3", "right"),
    }  # fmt: skip
    named = {d["benchmark"].rpartition("::")[2]: d for d in worse}
    summed = named["test_corpus[Conv-bfloat16-1-forward-./mine.py:Mine]"]
    assert (summed["old"], summed["new"]) == ([[0.0]], [[1.0]])  # sums so short are in class P
    assert new.found["operators_lost"] == ["Neg"]
    reasons = ("ZeroDivisionError", "raised", "check accuses it")
    other = [v for v in new.found["vanished"] if not any(w in v["reason"] for w in reasons)]
    assert not other


def test_a_ratio_is_compared_to_the_digit(tmp_path: Path, compared: Compared) -> None:
    near = [judged(judgement={**RIGHT, "ratio": r}, shapes=[[k + 2]])
            for k, r in enumerate((0.25, 0.25, 0.25))]  # fmt: skip
    far = [judged(judgement={**RIGHT, "ratio": r}, shapes=[[k + 2]])
           for k, r in enumerate((0.25, 0.25 + 1e-12, 0.2501))]  # fmt: skip
    old = file(tmp_path / "old.json", *near)
    new = file(tmp_path / "new.json", *far, seconds=1.0)  # judging took a thousand times as long
    answer = compared(old, new)
    found = [answer.verdict(name(k), "error / bar")["verdict"] for k in range(3)]
    assert found == ["same", "same", "worse"]
    assert {d["metric"]["name"] for d in answer.found["decisions"]} == {
        "error / bar", "right", "share judged",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [("P", "F", "better"), ("F", "P", "worse")]
)
def test_ratios_of_two_classes_are_not_compared(
    before: str, after: str, verdict: str, tmp_path: Path, compared: Compared
) -> None:
    ratios = {"F": 0.9, "P": 0.3}
    old, new = (
        file(tmp_path / f"{side}.json",
             judged(judgement={**RIGHT, "arithmetic": c, "ratio": ratios[c]}, dtype="float16"))
        for side, c in (("old", before), ("new", after))
    )  # fmt: skip
    answer = compared(old, new)
    assert answer.status == (verdict == "worse")
    changed = {d["metric"]["name"]: d["verdict"] for d in answer.found["decisions"]
               if d["verdict"] != "same"}  # fmt: skip
    assert changed == {"arithmetic class": verdict}


def test_an_error_without_end_is_wrong_and_nothing_else(
    tmp_path: Path, compared: Compared
) -> None:
    wrong = {**RIGHT, "right": False, "ratio": None}
    old = file(tmp_path / "old.json", judged())
    answer = compared(old, file(tmp_path / "new.json", judged(judgement=wrong)))
    assert answer.status == 1
    found = [d["metric"]["name"] for d in answer.found["decisions"] if d["verdict"] == "worse"]
    assert found == ["right"]


def test_other_data_are_not_compared(tmp_path: Path, compared: Compared) -> None:
    old = file(tmp_path / "old.json", judged("da7a"))
    answer = compared(old, file(tmp_path / "new.json", judged("0ther")))
    assert answer.found["changed"] == [name(0)]
    assert answer.found["decisions"] == []


def test_beside_times(tmp_path: Path, compared: Compared) -> None:
    """A side is a run of the corpus and runs that are timed: nothing vanished of either."""
    for side in ("old", "new"):
        for k in range(2):
            write(tmp_path / f"{side}{k}.json", [benchmark("timed", 1e-3 * (1 + k / 100))])
        file(tmp_path / f"{side}-corpus.json", judged(shapes=[[3]]))
    answer = compared(tmp_path / "old*.json", tmp_path / "new*.json")
    assert answer.found["vanished"] == []
    assert answer.verdict(name(0), "error / bar")["verdict"] == "same"
    assert answer.verdict("timed", "time")["verdict"] in ("same", "unsure")


def test_a_copy_is_no_second_run(tmp_path: Path, compared: Compared) -> None:
    old = file(tmp_path / "old.json", judged())
    copy = tmp_path / "copy.json"
    copy.write_text(old.read_text())
    answer = compared(f"{old},{copy}", old)
    assert answer.status == 2
    assert "is a copy of" in answer.err
