"""What decides in a gate, with all that it knows: a page carries it and can be verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from d5test.compare import Comparison, Run, compare
from d5test.compare.comparison import Vanished
from d5test.compare.decision import worst_first
from d5test.compare.numbers import number
from d5test.gate.accepted import Accepted, accept
from d5test.gate.decider import Decider, Found, Verdicts
from d5test.gate.evidence import GATED, Evidence


class Gated:
    """A rule of `d5test.report.content`: by what sessions and pairs said.

    found     the evidence
    accepted  slowdowns that are accepted, as of the day `today`
    """

    assumes = (
        "verdicts tell from which slowdown on one would be seen, by normal errors; what convicts "
        "are signs of pairs, which assume no distribution (docs/gate.md)"
    )
    summarises = (
        "changes are medians of quotients of rounds timed in turn, since what disturbs both "
        "versions at once cancels in a quotient only, or, where those err by less, quotients of "
        "the fastest tenths of all rounds; of two quotients, and of several processes, their "
        "geometric mean"
    )

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.found: Found = {
            str(name): {metric: _evidence(metrics[metric.name]) for metric in GATED}
            for name, metrics in content["found"].items()
        }
        self.accepted = [
            Accepted.of({**row, "expires": date.fromisoformat(row["expires"])})
            for row in content["accepted"]
        ]
        self.today = date.fromisoformat(content["today"])

    @classmethod
    def of(cls, found: Found, accepted: Sequence[Accepted]) -> Gated:
        """The rule of a gate that was held today."""
        return cls(_content(found, accepted, date.today()))

    def compared(self, old: Sequence[Run], new: Sequence[Run], effect: float) -> Comparison:
        """The comparison, worst first."""
        comparison = compare(old, new, effect, Verdicts(self.found, Decider(effect)))
        decisions = worst_first(accept(comparison.decisions, self.accepted, self.today))
        vanished = comparison.matching.vanished
        failed = _failed(old, new, {gone.name for gone in vanished})
        matching = replace(comparison.matching, vanished=[*vanished, *failed])
        return replace(comparison, decisions=decisions, matching=matching)

    def to_json(self) -> dict[str, Any]:
        """What it is made of again."""
        return _content(self.found, self.accepted, self.today)


def _failed(old: Sequence[Run], new: Sequence[Run], known: set[str]) -> Iterator[Vanished]:
    """Benchmarks that failed in some of the new version's processes, and never in the old's."""
    operators = {name: e.operator for run in old for name, e in run.entries.items()}
    known |= {name for run in old for name in run.untimed}
    for run in new:
        for name, why in run.untimed.items():
            if name in operators and name not in known:
                known.add(name)
                yield Vanished(name, operators[name], f"in {Path(run.path).stem}: {why}")


def _content(found: Found, accepted: Sequence[Accepted], today: date) -> dict[str, Any]:
    return {
        "found": {
            name: {metric.name: asdict(evidence) for metric, evidence in metrics.items()}
            for name, metrics in found.items()
        },
        "accepted": [{**asdict(row), "expires": row.expires.isoformat()} for row in accepted],
        "today": today.isoformat(),
    }


def _evidence(values: Mapping[str, Any]) -> Evidence:
    names = [field.name for field in fields(Evidence)]
    return Evidence(**{name: [number(value, name) for value in values[name]] for name in names})
