"""Every verdict computed again from the page: what was changed in it is found."""

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.cli import main
from d5test.compare import Unreadable
from d5test.compare.output import short
from d5test.compare.reading import read
from d5test.report import Report, content, page
from d5test.report.content import data_of, report_of, unpack
from d5test.report.page import DATA
from tests.compare.files import RIGHT, benchmark, name, sides, write

Make = Callable[..., Any]


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], tuple[int, str, str]]:
    def run(path: Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["verify", str(path)])
        return status, *capsys.readouterr()

    return run


def repacked(text: str, change: Callable[[Any], None]) -> str:
    """The page with other data."""
    (block,) = DATA.findall(text)
    data = unpack(block)
    change(data)
    content = gzip.compress(json.dumps(data).encode())
    return text.replace(block, base64.b64encode(content).decode())


def test_a_page_is_what_its_data_give(tmp_path: Path, made: Make, verified: Any) -> None:
    given = sides(
        tmp_path, slower={1: 1.3, 2: 0.7}, new={3: {"judgement": {**RIGHT, "share": 0.5}}}
    )
    found = made(*given)
    assert verified(found.path) == (
        0,
        "the same: 25 verdicts computed again from the page's data\n",
        "",
    )


def test_times_against_a_work_are_in_the_data(tmp_path: Path, made: Make, verified: Any) -> None:
    for side, factor in (("old", 1.0), ("new", 1.3)):
        times = [20 * factor * noise for noise in (1.0, 1.004, 0.997)]
        paced = {"work": "w", "paces": [5e-5 / factor] * 3, "times": times}
        entry = benchmark(name(0), 1e-3, control=[1e-3, 1.001e-3], paced=paced)
        write(tmp_path / f"{side}.json", [entry])
    found = made(tmp_path / "old.json", tmp_path / "new.json")
    assert f"1 worse (time of {short(name(0))} +30.0%)" in found.out
    status, out, _ = verified(found.path)
    assert (status, out) == (0, "the same: 5 verdicts computed again from the page's data\n")


def test_one_version_alone(tmp_path: Path, made: Make, verified: Any) -> None:
    found = made(sides(tmp_path)[0])
    assert verified(found.path)[:2] == (
        0,
        "the same: 20 verdicts computed again from the page's data\n",
    )


def test_the_data_are_those_of_the_files(tmp_path: Path) -> None:
    old, new = (read(side, 256) for side in sides(tmp_path, runs=2))
    report = Report(old, new, 0.04, {name(0): ([1e-3, 2e-3], [1e-3, 3e-3])})
    again = report_of(json.loads(json.dumps(data_of(report))))
    assert again.effect == 0.04
    assert again.comparison == report.comparison
    for before, after in zip(report.runs, again.runs, strict=True):
        assert (after.entries, after.facts, after.when) == (
            before.entries,
            before.facts,
            before.when,
        )
        for full, entry in before.entries.items():
            detail = after.entries[full].detail
            assert detail.about == entry.detail.about
            assert np.array_equal(detail.rounds, entry.detail.rounds)
    assert np.allclose(again.paired[name(0)], report.paired[name(0)], rtol=2**-24, atol=0)
    assert page(again) == page(report)


def test_a_changed_headline_is_found(tmp_path: Path, made: Make, verified: Any) -> None:
    found = made(*sides(tmp_path, slower={1: 1.3}))
    found.path.write_text(found.text.replace("REGRESSED</strong>", "PASSED</strong>"))
    status, out, _ = verified(found.path)
    assert (status, out.count("\n")) == (1, 1)
    assert "the page is not the one that its data give" in out


def test_a_changed_script_is_found(tmp_path: Path, made: Make, verified: Any) -> None:
    found = made(*sides(tmp_path))
    found.path.write_text(found.text.replace("begin();", "begin(); "))
    assert verified(found.path)[0] == 1


def test_a_changed_verdict_is_named(tmp_path: Path, made: Make, verified: Any) -> None:
    found = made(*sides(tmp_path, slower={1: 1.3}))

    def forge(data: Any) -> None:
        (row,) = [row for row in data["shown"]["rows"] if row["verdict"] == "worse"]
        row["verdict"] = "same"

    found.path.write_text(repacked(found.text, forge))
    status, out, _ = verified(found.path)
    assert status == 1
    assert out == f"not the same: time of {name(1)}: it says same, its data give worse\n"


def test_changed_data_give_another_verdict(tmp_path: Path, made: Make, verified: Any) -> None:
    found = made(*sides(tmp_path, slower={1: 1.3}))

    def forge(data: Any) -> None:
        for run in data["new"]:
            run["entries"][1]["samples"][0][1] /= 1.3

    found.path.write_text(repacked(found.text, forge))
    status, out, _ = verified(found.path)
    assert status == 1
    assert f"time of {name(1)}: it says worse, its data give same" in out
    assert "it says 'REGRESSED: " in out


def test_verdicts_of_another_version_are_compared_all_the_same(
    tmp_path: Path, made: Make, verified: Any
) -> None:
    found = made(*sides(tmp_path))
    text = found.text.replace("<h2>Environment</h2>", "<h2>Surroundings</h2>")
    found.path.write_text(text)
    assert verified(found.path)[0] == 1
    found.path.write_text(repacked(text, lambda data: data.update(d5test="0.0.9")))
    status, out, _ = verified(found.path)
    assert status == 0
    assert out.splitlines()[1:] == ["not compared: the page's text, which d5test 0.0.9 wrote"]


def broken(text: str, **fields: Any) -> str:
    return repacked(text, lambda data: data.update(fields))


UNREADABLE: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "empty": (lambda text: "", "is not a page of d5test"),
    "foreign": (lambda text: "<html></html>", "is not a page of d5test"),
    "not UTF-8": (lambda text: b"\xff\xfe", "is not UTF-8"),
    "truncated": (lambda text: text[: text.index("H4sI") + 99], "is not a page of d5test"),
    "two blocks": (lambda text: text + DATA.search(text)[0], "one block of data"),
    "a torn block": (
        lambda text: DATA.sub(lambda m: m[0].replace(m[1], m[1][:400]), text),
        "damaged",
    ),
    "no gzip": (lambda text: text.replace("H4sI", "AAAA"), "damaged"),
    "another version": (lambda text: broken(text, version=2), "of another version"),
    "an unknown rule": (lambda text: broken(text, rule=["os:system", "ls"]), "a rule that this"),
    "no runs": (lambda text: broken(text, old=None), "damaged"),
    "nothing shown": (lambda text: broken(text, shown=[]), "damaged"),
    "NaN": (lambda text: broken(text, effect=float("nan")), "not a finite number"),
    "no metric": (lambda text: broken(text, metrics=[]), "damaged"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_one_line(
    case: str, tmp_path: Path, made: Make, verified: Any
) -> None:
    change, words = UNREADABLE[case]
    found = made(*sides(tmp_path))
    content = change(found.text)
    found.path.write_bytes(content if isinstance(content, bytes) else content.encode())
    status, out, err = verified(found.path)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"d5test verify: {found.path}: ")
    assert words in line


def test_what_a_rule_lacks_is_one_line() -> None:
    empty = {"found": {"b": {"time": {}}}, "accepted": [], "today": "2026-01-01"}
    data = {"metrics": [], "old": [], "new": [], "paired": {}, "effect": 0.05}
    with pytest.raises(Unreadable, match="damaged"):
        content.report_of({**data, "rule": ["gated", empty]})


def test_many_files_are_named_by_the_first_and_the_last(tmp_path: Path, made: Make) -> None:
    text = made(*sides(tmp_path, runs=5)).text
    assert f"5 files, {tmp_path}/old0.json (old0) to {tmp_path}/old4.json (old4)" in text


def test_data_that_swell_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "LARGEST", 1 << 20)
    swelling = base64.b64encode(gzip.compress(b" " * (1 << 21))).decode()
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        unpack(swelling)


@pytest.mark.parametrize("path", ["missing.html", "/dev/null", "."])
def test_files_that_are_not_there(
    path: str, tmp_path: Path, monkeypatch: Any, verified: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = verified(Path(path))
    assert (status, out, len(err.splitlines())) == (2, "", 1)
