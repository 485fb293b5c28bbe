"""The comparison that comes of a gate: its runs as files, and what was decided on their noise.

Requirements: every entry that was measured is written, as benchmark files that everything reads;
what does not repeat to the digit is decided by the gate's stages, everything else as in a
comparison of stored files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest_benchmark
from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
from pytest_benchmark.stats import Stats

from d5test.compare import Comparison, Decision, Run, read
from d5test.gate.accepted import Accepted
from d5test.gate.gate import Findings
from d5test.gate.rule import Gated
from d5test.gate.session import Bout
from d5test.gate.versions import ARMS, NEW, OLD
from d5test.record import KEY, SCHEMA
from d5test.timed import Entry


@dataclass(frozen=True)
class Outcome:
    """What was found of two versions.

    old, new  their runs, as they were written
    rule      what decided
    """

    comparison: Comparison
    findings: Findings
    old: Sequence[Run]
    new: Sequence[Run]
    rule: Gated

    def of(self, name: str) -> list[Decision]:
        """The decisions on one benchmark, worst first."""
        return [d for d in self.comparison.decisions if d.values.benchmark == name]

    @property
    def paired(self) -> dict[str, tuple[list[float], list[float]]]:
        """Rounds of both versions that were measured in turn, by benchmark."""
        found: dict[str, tuple[list[float], list[float]]] = {}
        for _, bouts in self.findings.bouts:
            for name, bout in bouts.items():
                if OLD in bout.entries and NEW in bout.entries:
                    old, new = found.setdefault(name, ([], []))
                    for side, arm in ((old, OLD), (new, NEW)):
                        side.extend(chain.from_iterable(bout.blocks[arm]))
        return found

    def broken(self, name: str) -> str:
        """Why the old version has no such benchmark; empty if it has."""
        bouts = (bouts[name] for _, bouts in self.findings.bouts if name in bouts)
        return next((bout.broken[OLD] for bout in bouts if OLD in bout.broken), "")

    def vanished(self, name: str) -> str:
        """Why the new version has no such benchmark; empty if it has."""
        gone = self.comparison.matching.vanished
        return next((v.reason for v in gone if v.name == name), "")


def outcome(
    findings: Findings,
    effect: float,
    folder: Path,
    accepted: Sequence[Accepted] = (),
    rounds: int = 0,
) -> Outcome | None:
    """Write the runs into the folder, and compare them. None if nothing was measured.

    `rounds`: how many of each run are kept to be drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in chain.from_iterable(folder.glob(f"{arm}-*.json") for arm in ARMS):
        stale.unlink()
    sides: dict[bool, list[Path]] = {False: [], True: []}
    for label, bouts in findings.bouts:
        for arm in ARMS:
            path = folder / f"{arm}-{label.replace(' ', '-')}.json"
            content = _content(bouts, arm)
            if content["benchmarks"] or content[KEY]["untimed"]:
                path.write_text(json.dumps(content))
                sides[arm == NEW].append(path)
    if not sides[False] or not sides[True]:
        return None
    old, new = ([r for p in sides[side] for r in read(str(p), rounds)] for side in (False, True))
    rule = Gated.of(findings.evidence, accepted)
    return Outcome(rule.compared(old, new, effect), findings, old, new, rule)


def _content(bouts: Mapping[str, Bout], arm: str) -> dict[str, Any]:
    """A benchmark file, as pytest-benchmark writes it."""
    timed = {n: b.entries[arm] for n, b in bouts.items() if arm in b.entries}
    untimed = {n: b.broken[arm] for n, b in bouts.items() if arm in b.broken}
    return {
        "machine_info": _machine(),
        "commit_info": {},
        "benchmarks": [_benchmark(name, entry) for name, entry in timed.items()],
        "datetime": datetime.now(UTC).isoformat(),
        "version": pytest_benchmark.__version__,
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
