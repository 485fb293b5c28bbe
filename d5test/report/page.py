"""The page: one HTML file with its style, its scripts and its data; written, and verified.

Requirements: nothing is loaded from anywhere, and the Content-Security-Policy names the hash of
each script and of the style, so that nothing else is run or obeyed; what a file says is text. The
verdict and its reason come first, and stand there without a script. To verify a page every verdict
is computed again from the data that it carries: nothing of it is run, and what cannot be read is
an `Unreadable` of one line. That the data are those that were measured only the files can tell.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from math import inf, log1p
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from d5test import __version__
from d5test.compare import output
from d5test.compare.decision import VERDICTS, Decision
from d5test.compare.entry import Entry
from d5test.compare.environment import of_runs
from d5test.compare.numbers import Unreadable
from d5test.compare.output import plain, quantity, short
from d5test.compare.reading import Run
from d5test.metric import RIGHT, Metric
from d5test.report.content import Report, damaged, data_of, entries, pack, report_of, unpack
from d5test.report.rules import MASSES, PRACTICE, Evidence
from d5test.report.sections import (
    COLLECTIVES,
    MOST,
    STEPS,
    collectives,
    coverage,
    fitness,
    numerics,
    steps,
)

SCRIPTS = (
    ("vendor/d3.min.js",),
    ("vendor/plot.umd.min.js",),
    (
        "script/data.js",
        "script/drawing.js",
        "script/detail.js",
        "script/table.js",
        "script/main.js",
    ),
)
"""Of each script element the files that it consists of, in order."""
NAMED = 4
"""Files of a side that are named one by one."""
ALONE = ("outputs", "value", "runs differ by", "what")
"""Columns where one version is shown alone."""
OUTPUTS = ("wrong", "unjudged", "right")
"""What its timed outputs were, worst first."""
Row = dict[str, Any]
"""A metric of a benchmark, by name:

was     the benchmark's name in the old version
noise   the limit as a logarithm; None where there is none
cells   texts under the columns; the first is the verdict, the last says what it is
old     the old version's median, None where it has none; `new` likewise
runs    what was compared, of each run of the old version and of the new one, as text
"""
DATA = re.compile(r'<script id="data" type="application/gzip">([A-Za-z0-9+/=]+)</script>')
LARGEST = 1 << 26
"""Bytes of a page that is read; a page of 10,000 benchmarks has a quarter of it."""


def page(report: Report, data: str | None = None) -> str:
    """The page of a report. `data`: those that it carries, if they are packed already."""
    style = _file("page.css")
    scripts = ["".join(map(_file, names)) for names in SCRIPTS]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    text = _template().render(
        **_context(report),
        version=__version__,
        policy=policy,
        style=Markup(style),
        scripts=list(map(Markup, scripts)),
        licences=_file("vendor/LICENSES.txt"),
        data=Markup(data if data is not None else pack(content(report))),
    )
    return f"{text}\n"


@cache
def _template() -> Template:
    """The page's template; to compile it takes longer than to fill it."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html"))


def content(report: Report) -> dict[str, Any]:
    """What the page carries: data of the report, and what is shown of them."""
    return {**data_of(report), "shown": shown(report)}


def rows(report: Report) -> list[Row]:
    """All rows of the table, worst first."""
    if report.comparison is not None:
        return list(map(_decided, report.comparison.decisions))
    return sorted(_alone(report.new), key=lambda row: OUTPUTS.index(row["verdict"]))


def first_rows(report: Report) -> list[Row]:
    """Those that stand in the page without a script: what the other formats show."""
    if report.comparison is not None:
        return list(map(_decided, output.shown(report.comparison)))
    return rows(report)[: output.MOST]


def _decided(decision: Decision) -> Row:
    values = decision.values
    return {
        "benchmark": values.benchmark,
        "was": values.was,
        "metric": plain(values.metric.name),
        "verdict": decision.verdict,
        "reason": plain(decision.reason),
        "cells": output.cells(decision),
        "change": decision.change,
        "noise": _noise(decision),
        "limit": decision.limit,
        "detectable": decision.detectable,
        "old": median(values.before) if values.before else None,
        "new": median(values.after) if values.after else None,
        "runs": [
            [_values(run, values.metric) for run in side] for side in (values.old, values.new)
        ],
    }


def _values(run: Sequence[float], metric: Metric) -> str:
    return ", ".join(quantity(value, metric) for value in run) or "none"


def _noise(decision: Decision) -> float | None:
    """The limit is relative to the old value: 1.25 times as long or, of rates, a fifth less."""
    limit = decision.limit
    if limit is None:
        return None
    if decision.values.metric.better == "lower":
        return log1p(limit)
    return -log1p(-limit) if limit < 1 else None


def _alone(runs: Sequence[Run]) -> Iterator[Row]:
    by_name: dict[str, list[Entry]] = {}
    for entry in entries(runs):
        by_name.setdefault(entry.name, []).append(entry)
    for several in by_name.values():
        metrics = {s.metric.name: s.metric for entry in several for s in entry.samples.values()}
        for metric in metrics.values():
            if metric.name != RIGHT.name:
                yield _measured(metric, several)


def _measured(metric: Metric, several: Sequence[Entry]) -> Row:
    runs = [e.samples[metric.name].values for e in several if metric.name in e.samples]
    values = [value for run in runs for value in run]
    typical, spread = median(values), max(values) - min(values)
    differ = f"{spread / abs(typical):.1%}" if len(values) > 1 and typical else ""
    judged = all(RIGHT.name in entry.samples for entry in several)
    verdict = "wrong" if not all(e.right for e in several) else "right" if judged else "unjudged"
    name, what = several[0].name, plain(metric.name)
    return {
        "benchmark": name,
        "was": name,
        "metric": what,
        "verdict": verdict,
        "reason": "",
        "cells": (verdict, quantity(typical, metric), differ, f"{what} of {short(name)}"),
        "new": typical,
        "runs": [[], [_values(run, metric) for run in runs]],
    }


def shown(report: Report) -> dict[str, Any]:
    """What the scripts show: the verdict, every row of the table, the steps that are drawn."""
    names: dict[tuple[str, str], int] = {}
    table = []
    for row in rows(report):
        place = names.setdefault((row.pop("was"), row["benchmark"]), len(names))
        known = {name: value for name, value in row.items() if value not in (None, inf, -inf)}
        table.append({**known, "benchmark": place})
    return {
        "verdict": report.verdict,
        "headline": report.headline,
        "columns": list(output.COLUMNS if report.comparison else ALONE),
        "verdicts": list(VERDICTS if report.comparison else OUTPUTS),
        "benchmarks": [[was, name, short(was), short(name)] for was, name in names],
        "rows": table,
        "steps": [asdict(step) for step in steps(report)],
    }


def _context(report: Report) -> dict[str, Any]:
    """What the template shows."""
    evidence = Evidence(report)
    comparison = report.comparison
    word, _, reason = report.headline.partition(": ")
    drawn, calls = steps(report), collectives(report)
    if comparison is None:
        sides = [("shown", report.new)]
        facts = of_runs([run.facts for run in report.new])
        known: list[tuple[str, ...]] = [(plain(name), plain(fact)) for name, fact in facts.items()]
    else:
        sides = [("old", report.old), ("new", report.new)]
        known = [*output.environment(comparison)]
    return {
        "verdict": report.verdict,
        "word": word,
        "reason": reason,
        "compared": comparison is not None,
        "sides": [(name, _files(side)) for name, side in sides],
        "environment": known,
        "fitness": fitness(report),
        "columns": output.COLUMNS if comparison else ALONE,
        "rows": first_rows(report),
        "lists": output.lists(comparison) if comparison else {},
        "coverage": coverage(report),
        "numerics": numerics(report),
        "steps": (STEPS, [step.cells for step in drawn[:MOST]], max(len(drawn) - MOST, 0)),
        "collectives": (COLLECTIVES, [c.cells for c in calls[:MOST]], max(len(calls) - MOST, 0)),
        "rules": [(rules, rules.findings(evidence)) for rules in (MASSES, PRACTICE)],
    }


def _files(side: Sequence[Run]) -> str:
    """Each with its time; of many the first and the last."""
    files = [
        f"{plain(run.path)} ({plain(run.when)})" if run.when else plain(run.path) for run in side
    ]
    if len(files) <= NAMED:
        return ", ".join(files)
    return f"{len(files)} files, {files[0]} to {files[-1]}"


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _file(name: str) -> str:
    """A file of this package; the sum of its lines is what a browser reads."""
    return files("d5test.report").joinpath(name).read_text(encoding="utf-8")


def markdown(report: Report) -> str:
    """For a pull request, the verdict first: what `d5test compare` writes, or its like of one."""
    if report.comparison is not None:
        return output.markdown(report.comparison)
    cells = [row["cells"] for row in first_rows(report)]
    return f"**{output.safe(report.headline)}**\n\n{output.grid(ALONE, cells)}"


def content_of(path: Path) -> str:
    """The text of a page's file."""
    if not path.is_file():
        raise Unreadable("there is no such file" if not path.exists() else "is not a regular file")
    if path.stat().st_size > LARGEST:
        raise Unreadable(f"is larger than {LARGEST >> 20} MiB")
    try:
        # bytes, so that no line's end is mended
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("is not a page of d5test: it is not UTF-8") from None


@dataclass(frozen=True)
class Verified:
    """`count` verdicts computed again; `differences` in words, none if all is as it is shown.

    written_by: another version of d5test that wrote the page, so that its text was not compared
    """

    count: int
    differences: tuple[str, ...]
    written_by: str = ""


def verify(text: str) -> Verified:
    """Verify a page."""
    blocks = DATA.findall(text)
    if len(blocks) != 1:
        raise Unreadable("is not a page of d5test: it does not carry one block of data")
    data = unpack(blocks[0])
    # Another version words its page in its own way; its verdicts are compared all the same.
    alike = data.get("d5test") == __version__
    with damaged():
        report = report_of(data)
        again = shown(report)
        differences = [*_differences(data.get("shown"), again)]
        if not differences and alike and page(report, blocks[0]) != text:
            differences.append("the page is not the one that its data give: it was changed")
    written_by = "" if alike else plain(str(data.get("d5test")))
    return Verified(len(again["rows"]), tuple(differences), written_by)


def _differences(before: Any, after: Mapping[str, Any]) -> Iterator[str]:
    """Between what a page shows and what its data give."""
    says, gives = str(before["headline"]), after["headline"]
    if says != gives:
        yield f"it says {plain(says)!r}, its data give {plain(gives)!r}"
    old, new = _verdicts(before), _verdicts(after)
    for name, metric in dict.fromkeys((*old, *new)):
        says, gives = (side.get((name, metric), "nothing") for side in (old, new))
        if says != gives:
            yield f"{metric} of {plain(name)}: it says {plain(says)}, its data give {gives}"


def _verdicts(content: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """By benchmark and metric."""
    names = content["benchmarks"]
    return {
        (str(names[row["benchmark"]][1]), str(row["metric"])): str(row["verdict"])
        for row in content["rows"]
    }
