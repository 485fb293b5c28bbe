"""The data in the page: the runs as they were read, and what the page says of them.

Requirements: every verdict can be computed again from them, to the last bit; no byte of a
stranger's text stands in the page as it came, since gzip and base64 leave none; the size is
bounded, whatever the number of rounds.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import Any

from d5test import __version__
from d5test.compare.detail import NOTHING, Detail, fact_of
from d5test.compare.entry import Entry, judged_right, paced_of
from d5test.compare.numbers import Unreadable, count, number, positive, told, value_of, within
from d5test.compare.reading import Run
from d5test.compare.rounds import packed, rounds_of, thinned, unpacked
from d5test.files import TooLarge, parsed, unzipped
from d5test.metric import TIME, Metric, Sample
from d5test.report.content import Report
from d5test.report.rule import name_of, rule_of

VERSION = 1
"""Raised when a field of the data changes its meaning."""
BUDGET = 1 << 21
"""Rounds in a page, of all benchmarks together: 11 MB."""
LARGEST = 1 << 26
"""Bytes of data that are packed and unpacked at most; 10,000 benchmarks have half of it."""


DAMAGED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What is raised where data are not as `data_of` makes them."""


def data_of(report: Report) -> dict[str, Any]:
    """What `report_of` makes the report of again."""
    metrics: dict[Metric, int] = {}
    count = sum(len(run.entries) for run in report.runs) + 2 * len(report.paired)
    most = BUDGET // max(count, 1)
    sides = [[_run(run, metrics, most) for run in side] for side in (report.old, report.new)]
    paired = {
        name: [packed(thinned(rounds_of(rounds), most)) for rounds in pair]
        for name, pair in report.paired.items()
    }
    return {
        "version": VERSION,
        "d5test": __version__,
        "effect": report.effect,
        "rule": [name_of(report.rule), report.rule.to_json()],
        "metrics": [asdict(metric) for metric in metrics],
        "old": sides[0],
        "new": sides[1],
        "paired": paired,
    }


def pack(data: Mapping[str, Any]) -> str:
    """As text that may stand anywhere in a page: gzip's bytes in base64."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    if len(text) > LARGEST:
        raise Unreadable(
            f"a page holds {LARGEST >> 20} MiB of data, these are {len(text) >> 20}: "
            "compare fewer benchmarks at a time"
        )
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def unpack(text: str) -> dict[str, Any]:
    """What `pack` made a text of."""
    try:
        found = parsed(unzipped(base64.b64decode(text, validate=True), LARGEST))
    except TooLarge as error:
        raise Unreadable(f"its data are {error}") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable("its data are damaged") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise Unreadable(f"its data are of another version; this d5test reads {VERSION}")
    return found


def report_of(data: Mapping[str, Any]) -> Report:
    """The report of which `data_of` made the data."""
    try:
        metrics = [_metric_of(metric) for metric in data["metrics"]]
        old, new = ([_run_of(run, metrics) for run in data[side]] for side in ("old", "new"))
        paired = {
            str(name): (unpacked(pair[0]).tolist(), unpacked(pair[1]).tolist())
            for name, pair in data["paired"].items()
        }
        rule = rule_of(*data["rule"])
        report = Report(old, new, positive(data["effect"], "effect"), paired, rule)
        # Decided here: what the rule lacks shows while it decides.
        _ = report.comparison
        return report
    except Unreadable:
        raise
    except DAMAGED as error:
        raise Unreadable("its data are damaged") from error


def _metric_of(metric: Mapping[str, Any]) -> Metric:
    name, unit, better, gate = (str(metric[key]) for key in ("name", "unit", "better", "gate"))
    tolerance = number(metric["tolerance"], "tolerance")
    return Metric(name, unit, better, gate, within(tolerance, "tolerance", 0, inf))


def _run(run: Run, metrics: dict[Metric, int], most: int) -> dict[str, Any]:
    return {
        "path": run.path,
        "when": run.when,
        "untimed": dict(run.untimed),
        "facts": dict(run.facts),
        "entries": [
            _entry(entry, run.details.get(name, NOTHING), metrics, most)
            for name, entry in run.entries.items()
        ],
    }


def _entry(entry: Entry, detail: Detail, metrics: dict[Metric, int], most: int) -> dict[str, Any]:
    return {
        "name": entry.name,
        "identity": entry.identity,
        "operator": entry.operator,
        "right": entry.right,
        "samples": [
            [metrics.setdefault(sample.metric, len(metrics)), *sample.values]
            for sample in entry.samples.values()
        ],
        "paced": asdict(entry.paced) if entry.paced else None,
        "about": dict(detail.about),
        "count": detail.count,
        "rounds": packed(thinned(detail.rounds, most)),
    }


def _run_of(run: Mapping[str, Any], metrics: Sequence[Metric]) -> Run:
    found = [_entry_of(entry, metrics) for entry in run["entries"]]
    return Run(
        str(run["path"]),
        str(run["when"]),
        {entry.name: entry for entry, _ in found},
        {str(name): str(why) for name, why in run["untimed"].items()},
        {str(name): str(fact) for name, fact in run["facts"].items()},
        {entry.name: detail for entry, detail in found},
    )


def _entry_of(entry: Mapping[str, Any], metrics: Sequence[Metric]) -> tuple[Entry, Detail]:
    found = [_sample_of(metrics[which], values) for which, *values in entry["samples"]]
    samples = {sample.metric.name: sample for sample in found}
    if bool(entry["right"]) != judged_right(samples):
        raise Unreadable("its data are damaged")
    about = {str(p): fact for p, v in entry["about"].items() if (fact := fact_of(v)) is not None}
    return (
        Entry(
            str(entry["name"]),
            str(entry["identity"]),
            str(entry["operator"]),
            bool(entry["right"]),
            samples,
            paced_of(entry.get("paced"), samples.get(TIME.name)),
        ),
        Detail(about, count(entry["count"], "the number of rounds"), unpacked(entry["rounds"])),
    )


def _sample_of(metric: Metric, values: Sequence[Any]) -> Sample:
    if not values:
        raise Unreadable(f"{told(metric.name)} has no values")
    return Sample(metric, tuple(value_of(metric, value, told(metric.name)) for value in values))
