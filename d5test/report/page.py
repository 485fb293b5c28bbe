"""The page: one HTML file with its style, its scripts and its data.

Requirements: nothing is loaded from anywhere, and the Content-Security-Policy names the hash of
each script and of the style, so that nothing else is run or obeyed; what a file says is text. The
verdict and its reason come first, and stand there without a script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from math import inf
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from d5test import __version__
from d5test.compare import rows
from d5test.compare.reading import Run
from d5test.compare.words import plain, short
from d5test.report import masses, practice, table
from d5test.report.content import Report
from d5test.report.coverage import coverage, numerics
from d5test.report.embedded import data_of, pack
from d5test.report.fitness import fitness
from d5test.report.rules import Evidence
from d5test.report.scaling import COLLECTIVES, MOST, STEPS, collectives, steps

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


def page(report: Report, data: str | None = None) -> str:
    """The page of a report. `data`: those that it carries, if they are packed already."""
    style = _file("page.css")
    scripts = ["".join(map(_file, names)) for names in SCRIPTS]
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_file("page.html"))
    return (
        template.render(
            **_told(report),
            version=__version__,
            policy=_policy(style, scripts),
            style=Markup(style),
            scripts=list(map(Markup, scripts)),
            licences=_file("vendor/LICENSES.txt"),
            data=Markup(data if data is not None else pack(content(report))),
        )
        + "\n"
    )


def content(report: Report) -> dict[str, Any]:
    """What the page carries: data of the report, and what is shown of them."""
    return {**data_of(report), "shown": shown(report)}


def shown(report: Report) -> dict[str, Any]:
    """What the scripts show: the verdict, every row of the table, the steps that are drawn."""
    every = table.every(report)
    names = list(dict.fromkeys((row.was, row.benchmark) for row in every))
    place = {pair: k for k, pair in enumerate(names)}
    return {
        "verdict": report.verdict,
        "headline": report.headline,
        "columns": list(table.columns(report)),
        "verdicts": list(table.verdicts(report)),
        "benchmarks": [[was, name, short(was), short(name)] for was, name in names],
        "rows": [_row(row, place[row.was, row.benchmark]) for row in every],
        "steps": [asdict(step) for step in steps(report)],
    }


def _row(row: table.Row, benchmark: int) -> dict[str, Any]:
    told = {name: value for name, value in vars(row).items() if value not in (None, inf, -inf)}
    del told["was"]
    return {**told, "benchmark": benchmark}


def _told(report: Report) -> dict[str, Any]:
    """What the template shows."""
    evidence = Evidence(report)
    comparison = report.comparison
    word, _, reason = report.headline.partition(": ")
    drawn, calls = steps(report), collectives(report)
    return {
        "verdict": report.verdict,
        "word": word,
        "reason": reason,
        "compared": comparison is not None,
        "sides": [(name, _files(side)) for name, side in _sides(report)],
        "environment": rows.environment(comparison) if comparison else _facts(report.new),
        "fitness": fitness(report),
        "columns": table.columns(report),
        "rows": table.first(report),
        "lists": [(h, names) for h, names in rows.lists(comparison) if names]
        if comparison
        else [],
        "coverage": coverage(report),
        "numerics": numerics(report),
        "steps": (STEPS, [step.cells for step in drawn[:MOST]], max(len(drawn) - MOST, 0)),
        "collectives": (COLLECTIVES, [c.cells for c in calls[:MOST]], max(len(calls) - MOST, 0)),
        "rules": [(rules, rules.findings(evidence)) for rules in (masses.RULES, practice.RULES)],
    }


def _sides(report: Report) -> list[tuple[str, Sequence[Run]]]:
    if report.comparison is None:
        return [("shown", report.new)]
    return [("old", report.old), ("new", report.new)]


def _files(side: Sequence[Run]) -> str:
    """Each with its time; of many the first and the last."""
    said = [
        f"{plain(run.path)} ({plain(run.when)})" if run.when else plain(run.path) for run in side
    ]
    return ", ".join(said) if len(said) <= NAMED else f"{len(said)} files, {said[0]} to {said[-1]}"


def _facts(side: Sequence[Run]) -> list[tuple[str, str]]:
    """All that is known of one version's machine, as `differing` would tell it."""
    names = dict.fromkeys(name for run in side for name in run.facts)
    return [
        (plain(name), plain(" | ".join(sorted({run.facts.get(name, "-") for run in side}))))
        for name in names
    ]


def _policy(style: str, scripts: Sequence[str]) -> str:
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _file(name: str) -> str:
    """A file of this package; the sum of its lines is what a browser reads."""
    return files("d5test.report").joinpath(name).read_text(encoding="utf-8")
