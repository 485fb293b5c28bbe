"""Shards of a suite: each test once, whoever runs it, and merged only if they belong together."""

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from d5test.arguments import Mistake
from d5test.cli import main
from d5test.plugin.shards import COMPARED, FREE
from d5test.shards import SCHEMA, Shard, digest, merged, read, shard

Suite = Callable[..., Any]
CELLS = ("--operator=Relu,Softmax", "--examples=3", "--check=forward", "--dtype=float32,float64")


def test_a_test_is_in_one_shard() -> None:
    ids = [f"operators/test_forward.py::test_forward[torch-Op{n}-float32]" for n in range(4000)]
    parts = [[test for test in ids if Shard(n, 4).holds(test)] for n in (1, 2, 3, 4)]
    assert sorted(test for part in parts for test in part) == sorted(ids)
    # 4,000 tests at 1/4: the standard deviation is 27.4, and 6.5 of them are off at 1e-10
    assert all(abs(len(part) - 1000) < 6.5 * 27.4 for part in parts)
    assert Shard(2, 5).holds("operators/test_forward.py::test_forward[é]") is False  # for ever


@pytest.mark.parametrize("text", ["0/4", "5/4", "a/b", "3", "-1/4", "1/0", "1/4/4", " 1/4", "²/4"])
def test_what_is_no_shard_is_one_line(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected 1/4, 2/4, 3/4 or 4/4, say, got"):
        shard(text)


def test_every_option_is_compared_or_free() -> None:
    """A new option that draws other cases must not be forgotten."""
    from d5test.plugin import options

    parser = pytest.Parser(_ispytest=True)
    options.pytest_addoption(parser)
    declared = {
        option.dest
        for name in ("d5test", "d5test gate")
        for option in parser.getgroup(name).options
    }
    assert declared == {*COMPARED, *FREE}
    assert not {*COMPARED} & {*FREE}


def test_shards_together_are_the_whole(suite: Suite, pytester: pytest.Pytester) -> None:
    alone = suite("Tiny", *CELLS, "--outcomes=alone.json")
    assert alone.rc == 0, alone.text
    counts: dict[Any, Any] = {}
    for number, more in ((1, ()), (2, ("-n", "2"))):
        options = (f"--shard={number}/2", f"--outcomes={number}.json", *more)
        ran = suite("Tiny", *CELLS, *options)
        assert ran.rc == 0, ran.text
        assert f"shard {number} of 2" in ran.text
        (said,) = ET.parse("run.xml").iterfind("testsuite/properties/property")
        assert (said.get("name"), said.get("value")) == ("d5test-shard", f"{number}/2")
        assert not counts.keys() & ran.counts().keys()
        counts |= ran.counts()
    assert counts == alone.counts()
    assert main(["merge", "2.json", "1.json", "-o", "whole.json", "--junitxml=whole.xml"]) == 0
    whole, whole_alone = read("whole.json"), read("alone.json")
    assert _outcomes(whole) == _outcomes(whole_alone)
    assert (whole.whole, whole.about) == (whole_alone.whole, whole_alone.about)
    assert len(list(ET.parse("whole.xml").iter("testcase"))) == len(whole_alone.ids)


def _outcomes(run: Any) -> dict[Any, Any]:
    return {(r["nodeid"], r.get("when")): r["outcome"] for r in run.reports}


@pytest.mark.nightly
def test_a_fault_of_one_shard_is_the_whole_s(
    suite: Suite, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    statuses = [
        suite("Wrong", *CELLS, f"--shard={n}/2", f"--outcomes={n}.json").rc for n in (1, 2)
    ]
    assert set(statuses) == {0, 1}
    capfd.readouterr()
    assert main(["merge", "1.json", "2.json", "-o", "whole.json"]) == 1
    assert "FAILED: " in capfd.readouterr().out
    assert read("whole.json").status == 1


def test_a_run_that_dies_leaves_what_was_known(
    suite: Suite, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    died = suite("Aborting", *CELLS, "--check=forward", "--in-process", "--outcomes=died.json")
    assert died.rc < 0
    run = read("died.json")
    assert run.status is None
    assert 0 < len(run.undone) <= len(run.ids)
    again = suite("", "--replay=died.json")
    assert again.rc == pytest.ExitCode.INTERRUPTED
    assert f"its run ended with {len(run.undone)} of {len(run.ids)} tests left" in again.text
    assert main(["merge", "died.json"]) == 2
    assert "died.json: its run ended with" in capfd.readouterr().err


@pytest.mark.parametrize(
    "options, why",
    [
        (("--shard=0/4",), "argument --shard: expected 1/4"),
        (("--shard=1/2", "--dist=loadgroup", "-n2"), "--dist=loadgroup renames tests"),
        (("--outcomes=no/such/folder.json",), "--outcomes=no/such/folder.json: No such file"),
        (("--replay=tiny.py",), "--replay runs nothing: leave out --backend"),
    ],
)
def test_what_means_nothing_is_one_line(suite: Suite, options: Any, why: str) -> None:
    ran = suite("Tiny", *CELLS, *options)
    assert ran.rc == pytest.ExitCode.USAGE_ERROR
    (error,) = [line for line in ran.text.splitlines() if line.startswith("ERROR: ")]
    assert why in error


IDS = tuple(f"operators/test_forward.py::test_forward[torch-Op{n}-float32]" for n in range(30))
ABOUT = {"d5test": "0.1.0", "packages": {"numpy": "2.4.6"}, "options": {"seed": 0}}


def written(folder: Path, name: str, part: str, **changes: Any) -> Path:
    """The file of a shard of `IDS`, but for what is planted in it."""
    ids = changes.get("ids", [test for test in IDS if shard(part).holds(test)])
    done = ids[: len(ids) - changes.get("left", 0)]
    about = {**ABOUT, **changes.get("about", {})}
    every = changes.get("every", IDS)
    reports = [{"nodeid": test, "when": "teardown", "outcome": "passed"} for test in done]
    events: list[dict[str, Any]] = [
        {"event": "run", "schema": changes.get("schema", SCHEMA), "shard": part, "about": about,
         "where": {"system": name}},
        {"event": "collected", "ids": ids},
        *({"event": "report", "report": report} for report in reports),
        {"event": "whole", "tests": len(every), "sha256": digest(every)},
    ]  # fmt: skip
    if "status" in changes or "killed" not in changes:
        events.append({"event": "end", "status": changes.get("status", 0)})
    path = folder / name
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def three(folder: Path, **changes: Any) -> list[Path]:
    """The three shards of `IDS`; `changes` is planted in the third."""
    first = [written(folder, f"{n}.json", f"{n}/3") for n in (1, 2)]
    return [*first, written(folder, "3.json", changes.pop("part", "3/3"), **changes)]


def test_shards_of_several_machines_are_merged(tmp_path: Path) -> None:
    events = list(merged([read(path) for path in three(tmp_path)]))
    assert sorted(events[1]["ids"]) == sorted(IDS)
    assert [part["system"] for part in events[0]["where"]["merged"]] == [
        "1.json", "2.json", "3.json",
    ]  # fmt: skip
    assert sum(event["event"] == "report" for event in events) == len(IDS)


THIRD = [test for test in IDS if Shard(3, 3).holds(test)]
PLANTED = {
    "a part twice": ({"part": "2/3"}, "2.json and /3.json are both shard 2/3"),
    "another number of parts": ({"part": "3/4"}, "not of one run: "),
    "another seed": (
        {"about": {"options": {"seed": 1}}},
        "1.json and /3.json differ in options seed: 0 and 1",
    ),
    "another version": (
        {"about": {"packages": {"numpy": "2.4.5"}}},
        'differ in packages numpy: "2.4.6" and "2.4.5"',
    ),
    "an option more": (
        {"about": {"options": {"seed": 0, "dtype": ["float32"]}}},
        'differ in options dtype: null and ["float32"]',
    ),
    "killed at its end": ({"killed": True}, "3.json: its run was killed"),
    "killed before": (
        {"killed": True, "left": 2},
        f"3.json: its run ended with 2 of {len(THIRD)} tests left: {THIRD[-2]}, {THIRD[-1]}",
    ),
    "interrupted": ({"status": 2}, "3.json: its run ended with exit status 2"),
    "other tests": ({"every": IDS[1:]}, "chose among other tests: 30 and 29"),
    "a test twice": (
        {"ids": [*THIRD, next(test for test in IDS if test not in THIRD)]},
        "1 test in more than one file: ",
    ),
    "a test lost": ({"ids": THIRD[1:]}, "the files hold 29 tests, the whole suite has 30"),
    "another schema": ({"schema": SCHEMA + 1}, "3.json: of schema 2; this d5test reads 1"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_belong_together_is_not_merged(tmp_path: Path, planted: str) -> None:
    changes, why = PLANTED[planted]
    with pytest.raises(Mistake) as caught:
        list(merged([read(path) for path in three(tmp_path, **changes)]))
    assert why in str(caught.value).replace(str(tmp_path), "")
    assert "\n" not in str(caught.value)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="1 shard of 3 missing: 3/3"):
        list(merged([read(path) for path in three(tmp_path)[:2]]))


@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", '{"event": "run"}\n', "\0\n", "[" * 9999])
def test_what_no_run_wrote_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(Mistake, match="not a file that --outcomes wrote"):
        read(path)
    with pytest.raises(Mistake, match="No such file"):
        read(tmp_path / "y.json")
