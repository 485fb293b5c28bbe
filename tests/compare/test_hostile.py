"""Files that are no benchmark files: one clear line, exit status 2, nothing obeyed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.compare.condensed import LARGEST, LONGEST, condensed
from tests.compare.files import benchmark, name, plain, write

GOOD = json.dumps({"benchmarks": [plain("good", 1e-3)]})


def changed(**stats: Any) -> str:
    entry = plain("odd", 1e-3)
    entry["stats"] |= stats
    return json.dumps({"benchmarks": [entry]})


def with_record(**fields: Any) -> str:
    entry = benchmark("odd", 1e-3)
    entry["extra_info"]["d5test"] |= fields
    return json.dumps({"benchmarks": [entry]})


def metric(**fields: Any) -> str:
    usual = {"name": "m", "unit": "1", "better": "lower", "gate": "exact", "values": [1]}
    return json.dumps({"benchmarks": [plain("odd", 1e-3, metrics=[{**usual, **fields}])]})


HOSTILE = {
    "empty": ("", "is empty"),
    "blank": ("  \n ", "is empty"),
    "truncated": (GOOD[: len(GOOD) // 2], "ends too early"),
    "truncated in a text": (GOOD[: GOOD.index("good") + 2], "ends too early"),
    "truncated in its rounds": (GOOD[: GOOD.index('"data"') + 15], "is not JSON"),
    "no JSON": ("a,b,c\n1,2,3\n", "is not JSON"),
    "not UTF-8": (b"\xff\xfe{}", "is no"),
    "a list": ("[]", "no list of benchmarks"),
    "foreign": ('{"version": 3, "results": []}', "no list of benchmarks"),
    "no benchmarks": ('{"benchmarks": []}', "has no benchmarks"),
    "benchmarks of text": ('{"benchmarks": ["x"]}', "is 'x', not an object"),
    "nested": ("[" * 200_000, "too deep"),
    "no stats": ('{"benchmarks": [{"fullname": "odd"}]}', "stats is None, not an object"),
    "no name": ('{"benchmarks": [{"stats": {"min": 1}}]}', "fullname is None, not text"),
    "twice": (json.dumps({"benchmarks": [plain("odd", 1), plain("odd", 1)]}), "'odd' twice"),
    "NaN": (changed(min=float("nan")), "stats.min is nan, not a finite number"),
    "infinity": (changed(min=float("inf")), "not a finite number"),
    "huge number": (changed().replace("0.001,", "1" * 400 + ",", 1), "not a finite number"),
    "endless number": (changed().replace("0.001,", "1" * 10_000 + ",", 1), "not a benchmark file"),
    "NaN among the rounds": (changed(data=[float("nan")] * 7), "a round of stats.data is nan"),
    "negative": (changed(min=-1), "stats.min is -1, not above zero"),
    "zero": (changed(min=0), "not above zero"),
    "text for a number": (changed(min="fast"), "stats.min is 'fast', not a number"),
    "truth for a number": (changed(min=True), "stats.min is True, not a number"),
    "10^9 rounds": (changed(rounds=10**9), "announces 1e+09 rounds and has 7"),
    "10^9 rounds, none kept": (changed(rounds=10**9, data=None), "more than fit"),
    "another schema": (with_record(schema=99), "d5test has schema 99; this d5test reads 1"),
    "a list for a record": (
        json.dumps({"benchmarks": [plain("odd", 1, d5test=[])]}), "has schema None"
    ),
    "right, perhaps": (
        with_record(judgement={"right": "yes"}), "d5test.judgement.right is 'yes', not true"
    ),
    "a judgement of text": (with_record(judgement="fine"), "d5test.judgement is 'fine', not an"),
    "a list of memory": (with_record(memory=[1]), "d5test.memory is list, not an object"),
    "a list of what was not timed": (
        json.dumps({**json.loads(GOOD), "d5test": {"untimed": ["x"]}}), "untimed is list, not an"
    ),
    "unknown class": (with_record(judgement={"arithmetic": "Q"}), "not one of F, P, S"),
    "memory of text": (with_record(memory={"device": "1 GB"}), "is '1 GB', not a number"),
    "control of text": (with_record(control="x"), "control is 'x', not a list"),
    "control of nothing": (with_record(control_resident=[0]), "a control's memory is 0, not"),
    "kernels of numbers": (with_record(kernels=[1]), "a name of d5test.kernels is 1, not text"),
    "a kernel that is no list": (with_record(kernels="mm"), "d5test.kernels is 'mm', not a list"),
    "unknown gate": (metric(gate="sometimes"), "gate is"),
    "unknown direction": (metric(better="bigger"), "better is"),
    "nameless metric": (metric(name=3), "no text"),
    "metric without values": (metric(values=[]), "has no values"),
    "metric of ours": (metric(name="time", unit="s", gate="noise"), "a metric is there twice"),
    "negative noise": (metric(gate="noise", values=[-1]), "not above zero"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_one_line_and_status_2(case: str, tmp_path: Path, compared: Callable[..., Any]) -> None:
    content, words = HOSTILE[case]
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(GOOD)
    bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    for arguments in ((good, bad), (bad, good)):
        answer = compared(*arguments)
        assert answer.status == 2
        assert answer.out == ""
        (line,) = answer.err.splitlines()
        assert line.startswith(f"d5test compare: {bad}: ")
        assert words in line


@pytest.mark.parametrize(
    "side",
    ["missing.json", "nothing*.json", "empty", "/dev/null", "loop.json", "l*.json", "x" * 5000,
     ",".join(f"run{k}.json" for k in range(60))],
)  # fmt: skip
def test_files_that_are_not_there(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "good.json").write_text(GOOD)
    answer = compared("good.json", side)
    assert answer.status == 2
    assert len(answer.err.splitlines()) == 1
    assert ("no JSON files in this folder" in answer.err) is (side == "empty")


def test_a_copy_is_no_control_arm(tmp_path: Path, compared: Callable[..., Any]) -> None:
    (tmp_path / "a.json").write_text(GOOD)
    (tmp_path / "b.json").write_text(json.dumps(json.loads(GOOD), indent=8))
    answer = compared(f"{tmp_path}/a.json,{tmp_path}/b.json", tmp_path / "a.json")
    assert answer.status == 2
    assert "is a copy of" in answer.err


@pytest.mark.parametrize("side", ["", " ", "good.json,", ",good.json"])
def test_an_empty_name_is_not_this_folder(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("good", "other"):
        Path(f"{word}.json").write_text(GOOD.replace("good", word))
    answer = compared("other.json", side)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == f"d5test compare: {side!r}: a name in it is empty\n"


def test_a_run_on_both_sides_compares_nothing(
    tmp_path: Path, compared: Callable[..., Any]
) -> None:
    for k in range(3):
        write(tmp_path / f"{k}.json", [benchmark(name(0), 1e-3 + k)])
    answer = compared(tmp_path / "[01].json", tmp_path / "[12].json")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == f"d5test compare: {tmp_path}/1.json: is on both sides\n"


def test_a_long_name_is_told_to_its_end(tmp_path: Path, compared: Callable[..., Any]) -> None:
    full = f"operators/test_time.py::test_time[{'gemm-' * 9}backward-./mine.py:Mine]"
    bad = write(tmp_path / "bad.json", [plain(full, 0)])
    answer = compared(write(tmp_path / "good.json", [plain(full, 1)]), bad)
    assert answer.status == 2
    assert f": benchmark '{full.partition('::')[2]}': stats.min is 0" in answer.err


def test_one_name_for_two_things_on_a_side(tmp_path: Path, compared: Callable[..., Any]) -> None:
    for k in range(2):
        found = benchmark(name(0), 1e-3 + k, shapes=[[3, 5], [5, 7 + k]])
        write(tmp_path / f"{k}.json", [found])
    (tmp_path / "new").mkdir()
    new = write(tmp_path / "new" / "new.json", [benchmark(name(0), 1e-3)])
    answer = compared(tmp_path, new)
    assert answer.status == 2
    assert "is another one" in answer.err


EVIL = "<script>alert(1)</script>|[red]\x1b[2J\n# x\u202e"


@pytest.mark.parametrize("output", ["text", "markdown", "json"])
def test_names_are_shown_and_not_obeyed(
    output: str, tmp_path: Path, compared: Callable[..., Any]
) -> None:
    for side, units in (("old", 1), ("new", 2)):
        metric = {"name": EVIL, "unit": EVIL, "better": "lower", "gate": "exact"}
        found = plain(EVIL, 1e-3, metrics=[{**metric, "values": [units]}])
        write(tmp_path / f"{side}.json", [found], untimed={EVIL: EVIL}, node=f"{side} {EVIL}")
    answer = compared(tmp_path / "old.json", tmp_path / "new.json", f"--format={output}")
    assert answer.status == 1
    assert not set(answer.out) & {"\x1b", "\u202e"}
    if output == "markdown":
        assert "<" not in answer.out
        assert not any(line.startswith("# x") for line in answer.out.splitlines())
        widths = {line.count("|") for line in answer.out.splitlines() if line.startswith("| ")}
        assert widths == {8, 4}
    if output == "text":
        assert "[red]" in "".join(answer.out.split())


@pytest.mark.parametrize("block", [1, 7, 63, 1 << 20])
def test_rounds_are_counted_and_all_else_is_kept(block: int) -> None:
    content = {
        "name": 'a "data": [1, 2] \\" \\\\',
        "data": [1.5e-3, 2, -3],
        "seconds": [],
        "cpu": [7],
        "other": [1, 2],
        "nested": {"preempted": [[1]], "data": ["x]", 3]},
    }
    text = json.dumps(content, indent=4).encode()
    blocks = [text[k : k + block] for k in range(0, len(text), block)]
    counted = {**content, "data": 3, "seconds": 0, "cpu": 1}
    assert json.loads(condensed(blocks)) == counted


def test_what_is_too_large_is_refused(tmp_path: Path, compared: Callable[..., Any]) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b'{"benchmarks": [' + b"[]," * (LARGEST // 3) + b"[]]}")
    answer = compared(path, path)
    assert answer.status == 2
    assert "64 MiB beside its rounds" in answer.err


def test_a_long_array_takes_no_memory() -> None:
    rounds = b"1.25e-3, " * 1000
    blocks = [b'{"data": [', *[rounds] * 100, b"1]}"]
    found = condensed(blocks)
    assert json.loads(found) == {"data": 100_001}
    assert len(found) < LONGEST
