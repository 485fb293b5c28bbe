"""What a page is made of, the rule by which it is decided, and both as the data in the page.

Requirements: every verdict can be computed again from the data, to the last bit, by whoever has
d5test and nothing else; a page names one of `RULES`, and no code of its own. No byte of a
stranger's text stands in the page as it came, since gzip and base64 leave none; the size is
bounded, whatever the number of rounds.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from pkgutil import resolve_name
from typing import Any, Protocol

from d5test import __version__
from d5test.compare import Comparison, Run, Unreadable, compare
from d5test.compare.comparison import EFFECT
from d5test.compare.condensed import packed, rounds_of, thinned, unpacked
from d5test.compare.entry import (
    Detail,
    Entry,
    fact_of,
    judged_right,
    kernels_of,
    paced_of,
    value_of,
)
from d5test.compare.numbers import count, number, positive, quoted, within
from d5test.compare.output import sentence, short
from d5test.files import TooLarge, parsed, unzipped
from d5test.metric import RIGHT, TIME, Metric, Sample

ROUNDS = 256
"""Of each benchmark in each run, at most, that are read to be drawn."""
VERSION = 1
"""Raised when a field of the data changes its meaning."""
BUDGET = 1 << 21
"""Rounds in a page, of all benchmarks together: 11 MB."""
LARGEST = 1 << 26
"""Bytes of data that are packed and unpacked at most; 10,000 benchmarks have half of it."""
Paired = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Benchmark -> wall seconds a call of the old version and of the new one, round by round: the
k-th of both were measured one after the other, and their quotient is free of what both shared."""


class DecisionRule(Protocol):
    """What decides. Its class is called with what `to_json` gave.

    assumes     of the noise, beyond what ranks and signs need; empty if nothing
    summarises  ratios that it sums up, how and why; empty if none
    """

    assumes: str
    summarises: str

    def compared(self, old: Sequence[Run], new: Sequence[Run], effect: float) -> Comparison:
        """The comparison of two versions."""
        ...

    def to_json(self) -> Any:
        """All that it knows beside the runs."""
        ...


class Stored:
    """That of `d5test compare`: by the runs alone."""

    assumes = (
        "limits take Student's t of what runs differ by, in logarithms; what that holds for was "
        "simulated with heavy tails, drift and load (docs/compare.md)"
    )
    summarises = ""

    def __init__(self, _: Any = None) -> None:
        pass

    def compared(self, old: Sequence[Run], new: Sequence[Run], effect: float) -> Comparison:
        """The comparison of two versions."""
        return compare(old, new, effect)

    def to_json(self) -> None:
        """Nothing."""


RULES: Mapping[str, str] = {
    "stored": "d5test.report.content:Stored",
    "gated": "d5test.gate.rule:Gated",
}
"""Where the rules are, by the name that a page carries."""


def name_of(rule: DecisionRule) -> str:
    """The name of a rule, which must be one of `RULES`."""
    place = f"{type(rule).__module__}:{type(rule).__qualname__}"
    return next(name for name, known in RULES.items() if known == place)


def rule_of(name: Any, content: Any) -> DecisionRule:
    """The rule of which `to_json` gave the content."""
    if name not in RULES:
        raise Unreadable("its verdicts come of a rule that this d5test does not know")
    rule: DecisionRule = resolve_name(RULES[name])(content)
    return rule


@dataclass(frozen=True)
class Report:
    """Everything that the page says is computed from these.

    old     runs of the version compared to; none where one version is shown alone
    new     runs of the version that is judged
    effect  the slowdown that was to be found
    paired  rounds measured in turn, where a benchmark has any
    rule    what decides
    """

    old: Sequence[Run]
    new: Sequence[Run]
    effect: float = EFFECT
    paired: Paired = field(default_factory=dict)
    rule: DecisionRule = field(default_factory=Stored)

    @cached_property
    def comparison(self) -> Comparison | None:
        """What is decided; None where there is nothing to compare with."""
        return self.rule.compared(self.old, self.new, self.effect) if self.old else None

    @property
    def runs(self) -> list[Run]:
        """Of both versions."""
        return [*self.old, *self.new]

    @property
    def verdict(self) -> str:
        """That of the comparison; of one version `wrong`, or `right` if nothing is known wrong."""
        if self.comparison is not None:
            return self.comparison.verdict
        return "right" if all(entry.right for entry in entries(self.new)) else "wrong"

    @property
    def headline(self) -> str:
        """The verdict and its reason, in one line."""
        if self.comparison is not None:
            return sentence(self.comparison)
        names = {name for run in self.new for name in run.entries}
        judged = {e.name for e in entries(self.new) if RIGHT.name in e.samples}
        untimed = {name for run in self.new for name in run.untimed}
        counts = (
            f"{len(names)} benchmarks, {len(judged)} with judged outputs, {len(untimed)} not timed"
        )
        wrong = list(dict.fromkeys(short(e.name) for e in entries(self.new) if not e.right))
        if wrong:
            return f"WRONG: the timed outputs of {len(wrong)} are wrong ({wrong[0]}). {counts}."
        return f"NOT COMPARED: {counts}; no output is known to be wrong."


def entries(runs: Sequence[Run]) -> Iterator[Entry]:
    """Of all benchmarks of all runs."""
    for run in runs:
        yield from run.entries.values()


@contextmanager
def damaged() -> Iterator[None]:
    """Whatever is raised where data are not as `data_of` makes them is an `Unreadable`."""
    try:
        yield
    except Unreadable:
        raise
    except (
        LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError,
    ) as error:  # fmt: skip
        raise Unreadable("its data are damaged") from error


def data_of(report: Report) -> dict[str, Any]:
    """What `report_of` makes the report of again."""
    metrics: dict[Metric, int] = {}
    drawn = sum(len(run.entries) for run in report.runs) + 2 * len(report.paired)
    most = BUDGET // max(drawn, 1)
    old, new = ([_run(run, metrics, most) for run in side] for side in (report.old, report.new))
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
        "old": old,
        "new": new,
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
        data = parsed(unzipped(base64.b64decode(text, validate=True), LARGEST))
    except TooLarge as error:
        raise Unreadable(f"its data are {error}") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable("its data are damaged") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise Unreadable(f"its data are of another version; this d5test reads {VERSION}")
    return data


def report_of(data: Mapping[str, Any]) -> Report:
    """The report of which `data_of` made the data."""
    with damaged():
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
        "entries": [_entry(entry, metrics, most) for entry in run.entries.values()],
    }


def _entry(entry: Entry, metrics: dict[Metric, int], most: int) -> dict[str, Any]:
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
        "kernels": entry.kernels,
        "about": dict(entry.detail.about),
        "count": entry.detail.count,
        "rounds": packed(thinned(entry.detail.rounds, most)),
    }


def _run_of(run: Mapping[str, Any], metrics: Sequence[Metric]) -> Run:
    entries = (_entry_of(entry, metrics) for entry in run["entries"])
    return Run(
        str(run["path"]),
        str(run["when"]),
        {entry.name: entry for entry in entries},
        {str(name): str(why) for name, why in run["untimed"].items()},
        {str(name): str(fact) for name, fact in run["facts"].items()},
    )


def _entry_of(entry: Mapping[str, Any], metrics: Sequence[Metric]) -> Entry:
    samples: dict[str, Sample] = {}
    for which, *values in entry["samples"]:
        metric, name = metrics[which], quoted(metrics[which].name)
        if not values:
            raise Unreadable(f"{name} has no values")
        checked = tuple(value_of(metric, value, name) for value in values)
        samples[metric.name] = Sample(metric, checked)
    right = bool(entry["right"])
    if right != judged_right(samples):
        raise Unreadable("its data are damaged")
    about = {str(p): fact for p, v in entry["about"].items() if (fact := fact_of(v)) is not None}
    rounds = count(entry["count"], "the number of rounds"), unpacked(entry["rounds"])
    return Entry(
        str(entry["name"]),
        str(entry["identity"]),
        str(entry["operator"]),
        right,
        samples,
        paced_of(entry.get("paced"), samples.get(TIME.name)),
        kernels_of(entry.get("kernels")),
        Detail(about, *rounds),
    )
