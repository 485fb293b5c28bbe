"""The comparison that comes of a gate: its runs as files, and what was decided on their noise.

Requirements: every entry that was measured is written, as benchmark files that everything reads;
what does not repeat to the digit is decided by the gate's stages, everything else as in a
comparison of stored files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache
from math import expm1, log1p
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.stats import Stats

from d5test.compare import Comparison, Decision, compare, read
from d5test.compare.decision import VERDICTS, Values, noisy
from d5test.compare.noise import BENCHMARK, POWER, holm
from d5test.gate.accepted import Accepted, accept
from d5test.gate.decider import PAIRS, Decider, floor, sign_p
from d5test.gate.evidence import GATED, Evidence
from d5test.gate.gate import Findings
from d5test.gate.session import Bout, Entry
from d5test.gate.versions import ARMS, NEW, OLD
from d5test.metric import Metric
from d5test.record import KEY, SCHEMA


@dataclass(frozen=True)
class Outcome:
    """What was found of two versions."""

    comparison: Comparison
    findings: Findings

    def of(self, name: str) -> list[Decision]:
        """The decisions on one benchmark, worst first."""
        return [d for d in self.comparison.decisions if d.values.benchmark == name]

    def broken(self, name: str) -> str:
        """Why the old version has no such benchmark; empty if it has."""
        bouts = (bouts[name] for _, bouts in self.findings.bouts if name in bouts)
        return next((bout.broken[OLD] for bout in bouts if OLD in bout.broken), "")

    def vanished(self, name: str) -> str:
        """Why the new version has no such benchmark; empty if it has."""
        gone = self.comparison.matching.vanished
        return next((v.reason for v in gone if v.name == name), "")


def outcome(
    findings: Findings, decider: Decider, folder: Path, accepted: Sequence[Accepted] = ()
) -> Outcome | None:
    """Write the runs into the folder, and compare them. None if nothing was measured."""
    sides: dict[bool, list[Path]] = {False: [], True: []}
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.json"):
        stale.unlink()
    for label, bouts in findings.bouts:
        for arm in ARMS:
            path = folder / f"{arm}-{label.replace(' ', '-')}.json"
            content = _content(bouts, arm)
            if content["benchmarks"] or content[KEY]["untimed"]:
                path.write_text(json.dumps(content))
                sides[arm == NEW].append(path)
    if not sides[False] or not sides[True]:
        return None
    old, new = ([run for path in sides[side] for run in read(str(path))] for side in (False, True))
    found = compare(old, new, decider.effect, Verdicts(findings, decider))
    decisions = accept(found.decisions, accepted, date.today())
    decisions.sort(key=lambda d: (VERDICTS.index(d.verdict), -d.harm))
    return Outcome(replace(found, decisions=decisions), findings)


class Verdicts:
    """Decides on a metric of all benchmarks by the evidence."""

    def __init__(self, findings: Findings, decider: Decider) -> None:
        self._findings, self._decider = findings, decider
        self._floors = {metric: floor(_every(findings, metric)) for metric in GATED}
        ps = {
            (name, metric): sign_p(decider.pairs(evidence))
            for name, metrics in findings.evidence.items()
            for metric, evidence in metrics.items()
            if evidence.pairs and decider.charge(evidence)
        }
        levels = holm(np.array([*ps.values()], dtype=np.float64), len(ps))
        self._levels = dict(zip(ps, map(float, levels), strict=True))

    def __call__(self, rows: Sequence[Values], effect: float) -> list[Decision]:
        """See `d5test.compare.comparison.Decider`."""
        others = [row for row in rows if row.metric not in GATED]
        return [self._decision(row) for row in rows if row.metric in GATED] + noisy(others, effect)

    def of(self, metric: Metric) -> dict[str, str]:
        """The verdicts on one metric alone, by benchmark."""
        rows = [Values(name, name, metric, [], []) for name in self._findings.evidence]
        return {row.benchmark: self._decision(row).verdict for row in rows}

    def _decision(self, row: Values) -> Decision:
        evidence = self._findings.evidence.get(row.benchmark, {}).get(row.metric)
        if evidence is None or not evidence.shifts:
            return Decision(row, "unsure", "it was not measured in all arms")
        if (row.benchmark, row.metric) in self._levels:
            return self._confronted(row, evidence)
        return self._screened(row, evidence)

    def _screened(self, row: Values, evidence: Evidence) -> Decision:
        decider = self._decider
        detectable = decider.detectable(max(self._floors[row.metric], median(evidence.errors)))
        told = {"limit": expm1(decider.limit), "detectable": expm1(detectable)}
        change = expm1(evidence.shift)
        if decider.charge(evidence):
            why = "the budget was spent before pairs of fresh processes told"
            return Decision(row, "unsure", why, change, **told)
        return _same_or_unsure(row, change, told, decider.effect)

    def _confronted(self, row: Values, evidence: Evidence) -> Decision:
        decider, sign = self._decider, self._decider.charge(evidence)
        pairs = decider.pairs(evidence)
        level = self._levels[row.benchmark, row.metric]
        told = {"limit": expm1(decider.limit), "detectable": expm1(decider.confirmable(pairs))}
        change, agree = expm1(sign * median(pairs)), sum(d > 0 for d in pairs)
        if decider.guilty(pairs, level):
            why = f"in {agree} of {len(pairs)} pairs of fresh processes"
            return Decision(row, "worse" if sign > 0 else "better", why, change, **told)
        if len(pairs) < PAIRS and decider.settled(pairs, BENCHMARK) is not False:
            why = f"in {agree} of {len(pairs)} pairs; the budget was spent before {PAIRS}"
            return Decision(row, "unsure", why, change, **told)
        return _same_or_unsure(row, change, told, decider.effect)


def _same_or_unsure(
    row: Values, change: float, told: Mapping[str, float], effect: float
) -> Decision:
    seen = told["detectable"]
    if log1p(seen) <= log1p(effect):
        return Decision(row, "same", f"{seen:.1%} would have been found", change, **told)
    why = f"nothing below {seen:.1%} would be found with a probability of {POWER:.0%}"
    return Decision(row, "unsure", why, change, **told)


def _every(findings: Findings, metric: Metric) -> Iterable[Evidence]:
    return [metrics[metric] for metrics in findings.evidence.values()]


def _content(bouts: Mapping[str, Bout], arm: str) -> dict[str, Any]:
    """A benchmark file, as pytest-benchmark writes it."""
    timed = {n: b.entries[arm] for n, b in bouts.items() if arm in b.entries}
    untimed = {n: b.broken[arm] for n, b in bouts.items() if arm in b.broken}
    return {
        "machine_info": _machine(),
        "commit_info": {},
        "benchmarks": [_benchmark(name, entry) for name, entry in timed.items()],
        "datetime": datetime.now(UTC).isoformat(),
        "version": "5.1.0",
        KEY: {
            "schema": SCHEMA,
            "outcomes": {
                "passed": sum(entry["valid"] for entry in timed.values()),
                "failed": len(untimed) + sum(not entry["valid"] for entry in timed.values()),
                "error": 0,
                "skipped": 0,
            },
            "untimed": untimed,
        },
    }


@cache
def _machine() -> dict[str, Any]:
    """Pytest-benchmark's facts of the machine: it takes a second to find them."""
    found: dict[str, Any] = pytest_benchmark_generate_machine_info()
    return found


def _benchmark(name: str, entry: Entry) -> dict[str, Any]:
    stats = Stats()
    for seconds in entry["seconds"]:
        stats.update(seconds)
    test = name.rpartition("::")[2]
    return {
        "group": entry["problem"],
        "name": test,
        "fullname": name,
        "params": None,
        "param": test.partition("[")[2].removesuffix("]") or None,
        "extra_info": {KEY: entry},
        "options": {},
        "stats": {**stats.as_dict(), "data": list(entry["seconds"]), "iterations": entry["loops"]},
    }
