"""What stands in the page before any script has run."""

import base64
import hashlib
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from d5test.cli import main
from tests.compare.files import RIGHT, benchmark, name, plain, sides, write

Make = Callable[..., Any]


class Elements(HTMLParser):
    """Tags with their attributes, in order, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.code: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.code.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.code[-1] = (self.cdata_elem, self.code[-1][1] + data)


def words(text: str) -> str:
    """The text of a page, without tags."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_the_verdict_and_its_reason_come_first(tmp_path: Path, made: Make) -> None:
    found = made(*sides(tmp_path, slower={1: 1.3}))
    assert found.status == 0
    reason = found.out.splitlines()[0]
    assert reason.startswith("REGRESSED: 1 worse (time of gemm-1-forward-torch +")
    body = words(found.text[found.text.index("<body") :])
    assert body.removeprefix("To the table ").startswith(reason.replace(":", "", 1))


def test_it_loads_nothing(tmp_path: Path, made: Make) -> None:
    found = Elements(made(*sides(tmp_path)).text)
    loading = [
        v for _, attrs in found.tags for k, v in attrs.items() if k in ("src", "href", "data")
    ]
    assert [v for v in loading if not str(v).startswith(("#", "data:,"))] == []
    handlers = [k for _, attrs in found.tags for k in attrs if k.startswith("on") or k == "style"]
    assert handlers == []


def test_the_policy_names_what_may_run(tmp_path: Path, made: Make) -> None:
    found = Elements(made(*sides(tmp_path)).text)
    policy = next(a["content"] for t, a in found.tags if a.get("http-equiv"))
    for kind in ("script", "style"):
        allowed = re.search(rf"{kind}-src ([^;]*)", str(policy))
        assert allowed is not None
        codes = [code for tag, code in found.code if tag == kind]
        digests = [base64.b64encode(hashlib.sha256(c.encode()).digest()).decode() for c in codes]
        run = digests[1:] if kind == "script" else digests  # the first of the scripts is the data
        assert re.findall(r"'sha256-([^']*)'", allowed[1]) == run
    assert str(policy).startswith("default-src 'none';")
    assert "unsafe" not in str(policy)


def test_scripts_of_others_are_those_that_were_published() -> None:
    folder = files("d5test.report").joinpath("vendor")
    table = folder.joinpath("README.md").read_text()
    row = re.compile(r"^\| `([^`]*)` \| .* ([\d.]+) \| .* \| ([0-9a-f]{64}) \|$", re.MULTILINE)
    rows = row.findall(table)
    assert {script for script, _, _ in rows} == {
        path.name for path in folder.iterdir() if path.name.endswith(".js")
    }
    for script, version, digest in rows:
        content = folder.joinpath(script).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        assert f"v{version} Copyright".encode() in content[:99]


def test_environment_and_machine(tmp_path: Path, made: Make) -> None:
    for side, cpu in (("old", 3), ("new", 5)):
        for k in range(2):
            found = [benchmark(name(b), 1e-3 * (1 + 1e-4 * k)) for b in range(2)]
            write(tmp_path / f"{side}{k}.json", found, cpu={"count": cpu})
    text = words(made(tmp_path / "old*", tmp_path / "new*").text)
    assert "cores 3 5" in text
    assert "A slowdown of 5.0% would surely have been found in 2 of 2 benchmarks." in text
    assert re.search(r"half of the benchmarks 2\.5% 2\.\d% nine of ten", text)
    assert "runs 2 and 2 rounds a benchmark 7 load 0.5 preempted rounds 0%" in text


def test_without_a_noise_floor_it_says_why(tmp_path: Path, made: Make) -> None:
    text = words(made(*sides(tmp_path, runs=1)).text)
    assert "No noise floor of times is known: it takes two runs of each version." in text


def test_coverage_and_numerics(tmp_path: Path, made: Make) -> None:
    kept = benchmark(name(0), 1e-3)
    wrong = {**RIGHT, "right": False, "ratio": 3.0}
    gone = benchmark(name(1), 1e-3, operator="Relu")
    half = {"dtype": "float16", "judgement": {**RIGHT, "ratio": 0.55, "arithmetic": "P"}}
    write(tmp_path / "old.json", [kept, gone])
    new = [
        kept,
        benchmark(name(2), 1e-3, **half),
        benchmark(name(3), 1e-3, operator="Conv", judgement=wrong, problem="big"),
    ]
    write(tmp_path / "new.json", new)
    found = made(tmp_path / "old.json", tmp_path / "new.json").text
    heat = found[found.index('class="heat"') : found.index('id="numerics"')]
    cells = re.findall(r'<td class="([\w-]+)"[^>]*>([^<]*)</td>', heat)
    assert cells == [
        ("none", "&middot;"), ("shade-wrong", "wrong"),
        ("shade-3", "0.55"), ("shade-1", "0.25"),
        ("none", "&middot;"), ("shade-lost", "lost"),
    ]  # fmt: skip
    text = words(found)
    assert "torch float16 1 1 0 0.55 gemm-small 100.0% P" in text
    assert "torch float32 2 2 1 3 big 100.0%" in text


def test_one_version_alone(tmp_path: Path, made: Make) -> None:
    found = [benchmark(name(b), 1e-3 * (b + 1)) for b in range(2)]
    path = write(
        tmp_path / "run.json", [*found, plain("other", 1e-3)], untimed={"x": "skipped: y"}
    )
    page = made(path)
    assert page.status == 0
    told = "NOT COMPARED: 3 benchmarks, 2 with judged outputs, 1 not timed"
    assert page.out.startswith(f"{told}; no output is known to be wrong.\n")
    assert "error / bar of gemm-1-forward-torch right 0.25" in words(page.text)
    wrong = benchmark("odd", 1e-3, judgement={**RIGHT, "right": False, "ratio": 3.0})
    assert made(write(path, [*found, wrong])).out.startswith(
        "WRONG: the timed outputs of 1 are wrong (odd). 3 benchmarks"
    )


def test_markdown_is_that_of_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = sides(tmp_path, slower={1: 1.3})
    assert main(["report", *given, "--format=markdown"]) == 0
    report = capsys.readouterr().out
    assert main(["compare", *given, "--format=markdown"]) == 1
    assert report == capsys.readouterr().out
    assert report.startswith("**REGRESSED: 1 worse")
    assert main(["report", given[0], "--format=markdown"]) == 0
    alone = capsys.readouterr().out
    assert alone.startswith("**NOT COMPARED: 5 benchmarks")
    assert re.search(
        r"^\| right \| 1(\.\d+)? ms \| \d\.\d% \| time of gemm-0-forward-torch \|$",
        alone,
        re.MULTILINE,
    )
