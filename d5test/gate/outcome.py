"""The comparison that comes of a gate: its runs as files, and what was decided on their noise.

Requirements: every entry that was measured is written, as benchmark files that everything reads;
what does not repeat to the digit is decided by the gate's stages, everything else as in a
comparison of stored files. The corpus stands in the files of the first session: each version has
one run of it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pytest_benchmark
from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.stats import Stats

from d5test.compare import Comparison, Decision, Run, read
from d5test.files import replace
from d5test.gate.accepted import Accepted
from d5test.gate.corpus import Examination, Examined
from d5test.gate.evidence import Measurement
from d5test.gate.gate import Findings
from d5test.gate.rule import Gated
from d5test.gate.versions import ARMS, NEW, OLD
from d5test.record import KEY, SCHEMA
from d5test.timed import Entry

FIRST = "1"
"""What the first session is called."""
machine_info = cache(pytest_benchmark_generate_machine_info)
"""Pytest-benchmark's facts of the machine: it takes a second to find them."""


@dataclass(frozen=True)
class Outcome:
    """What was found of two versions.

    old, new  their runs, as they were written
    rule      what decided
    corpus    what was judged beside what was timed
    """

    comparison: Comparison
    findings: Findings
    old: Sequence[Run]
    new: Sequence[Run]
    rule: Gated
    corpus: Examination = field(default_factory=Examination)

    def of(self, name: str) -> list[Decision]:
        """The decisions on one benchmark, worst first."""
        return self._by_name.get(name, [])

    @cached_property
    def _by_name(self) -> dict[str, list[Decision]]:
        decisions: dict[str, list[Decision]] = defaultdict(list)
        for decision in self.comparison.decisions:
            decisions[decision.values.benchmark].append(decision)
        return decisions

    @property
    def paired(self) -> dict[str, tuple[list[float], list[float]]]:
        """Rounds of both versions that were measured in turn, by benchmark."""
        rounds: dict[str, tuple[list[float], list[float]]] = {}
        for _, measurements in self.findings.measurements:
            for name, measurement in measurements.items():
                if OLD in measurement.entries and NEW in measurement.entries:
                    old, new = rounds.setdefault(name, ([], []))
                    old.extend(chain.from_iterable(measurement.blocks[OLD]))
                    new.extend(chain.from_iterable(measurement.blocks[NEW]))
        return rounds

    def broken(self, name: str) -> str:
        """Why the old version has no such benchmark; empty if it has."""
        judged: Mapping[str, Examined | Measurement] = self.corpus.cases
        where = [judged, *(measured for _, measured in self.findings.measurements)]
        reasons = [held[name].broken.get(OLD, "") for held in where if name in held]
        return next(filter(None, reasons), "")

    def vanished(self, name: str) -> str:
        """Why the new version has no such benchmark; empty if it has."""
        return self._vanished.get(name, "")

    @cached_property
    def _vanished(self) -> dict[str, str]:
        return {gone.name: gone.reason for gone in self.comparison.matching.vanished}


def outcome(
    findings: Findings,
    effect: float,
    folder: Path,
    accepted: Sequence[Accepted] = (),
    rounds: int = 0,
    corpus: Examination | None = None,
) -> Outcome | None:
    """Write the runs into the folder, and compare them. None if nothing was measured.

    `rounds`: how many of each run are kept to be drawn.
    """
    corpus = corpus or Examination()
    folder.mkdir(parents=True, exist_ok=True)
    for stale in chain.from_iterable(folder.glob(f"{arm}-*.json") for arm in ARMS):
        stale.unlink()
    sides: dict[bool, list[Path]] = {False: [], True: []}
    for k, (label, measurements) in enumerate(findings.measurements or [(FIRST, {})]):
        for arm in ARMS:
            path = folder / f"{arm}-{label.replace(' ', '-')}.json"
            content = _content(measurements, {} if k else corpus.cases, arm)
            if content["benchmarks"] or content[KEY]["untimed"]:
                replace(path, json.dumps(content))
                sides[arm == NEW].append(path)
    if not sides[False] or not sides[True]:
        return None
    old, new = ([r for p in sides[side] for r in read(str(p), rounds)] for side in (False, True))
    rule = Gated.of(findings.evidence, accepted)
    return Outcome(rule.compared(old, new, effect), findings, old, new, rule, corpus)


def _content(
    measurements: Mapping[str, Measurement], cases: Mapping[str, Examined], arm: str
) -> dict[str, Any]:
    """A benchmark file, as pytest-benchmark writes it."""
    timed = {n: b.entries[arm] for n, b in measurements.items() if arm in b.entries}
    judged = {n: c.entries[arm] for n, c in cases.items() if arm in c.entries}
    both: Mapping[str, Measurement | Examined] = {**measurements, **cases}
    untimed = {n: b.broken[arm] for n, b in both.items() if arm in b.broken}
    right = [e["judgement"]["right"] for e in (*timed.values(), *judged.values())]
    return {
        "machine_info": machine_info(),
        "commit_info": {},
        "benchmarks": [
            *(_benchmark(n, e, e["seconds"], e["loops"]) for n, e in timed.items()),
            *(_benchmark(n, e, [cases[n].seconds[arm]], 1) for n, e in judged.items()),
        ],
        "datetime": datetime.now(UTC).isoformat(),
        "version": pytest_benchmark.__version__,
        KEY: {
            "schema": SCHEMA,
            "outcomes": {
                "passed": sum(right),
                "failed": len(untimed) + len(right) - sum(right),
                "error": 0,
                "skipped": 0,
            },
            "untimed": untimed,
        },
    }


def _benchmark(name: str, entry: Entry, rounds: Sequence[float], loops: int) -> dict[str, Any]:
    stats = Stats()
    for seconds in rounds:
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
        "stats": {**stats.as_dict(), "data": list(rounds), "iterations": loops},
    }
