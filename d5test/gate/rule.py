"""What decides in a gate, with all that it knows: a page carries it and can be verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from typing import Any

from d5test.compare import Comparison, Run, compare
from d5test.compare.decision import VERDICTS
from d5test.compare.entry import number
from d5test.gate.accepted import Accepted, accept
from d5test.gate.decider import Decider
from d5test.gate.evidence import GATED, Evidence
from d5test.gate.verdicts import Found, Verdicts


class Gated:
    """A rule of `d5test.report.rule`: by what sessions and pairs said.

    found     the evidence
    accepted  slowdowns that are accepted, as of the day `today`
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.found: Found = {
            str(name): {metric: _evidence(metrics[metric.name]) for metric in GATED}
            for name, metrics in given["found"].items()
        }
        self.accepted = [
            Accepted.of({**row, "expires": date.fromisoformat(row["expires"])})
            for row in given["accepted"]
        ]
        self.today = date.fromisoformat(given["today"])

    @classmethod
    def of(cls, found: Found, accepted: Sequence[Accepted]) -> Gated:
        """The rule of a gate that was held today."""
        return cls(_content(found, accepted, date.today()))

    def compared(self, old: Sequence[Run], new: Sequence[Run], effect: float) -> Comparison:
        """The comparison, worst first."""
        comparison = compare(old, new, effect, Verdicts(self.found, Decider(effect)))
        decisions = accept(comparison.decisions, self.accepted, self.today)
        decisions.sort(key=lambda d: (VERDICTS.index(d.verdict), -d.harm))
        return replace(comparison, decisions=decisions)

    def to_json(self) -> dict[str, Any]:
        """What it is made of again."""
        return _content(self.found, self.accepted, self.today)


def _content(found: Found, accepted: Sequence[Accepted], today: date) -> dict[str, Any]:
    return {
        "found": {
            name: {metric.name: asdict(evidence) for metric, evidence in metrics.items()}
            for name, metrics in found.items()
        },
        "accepted": [{**asdict(row), "expires": row.expires.isoformat()} for row in accepted],
        "today": today.isoformat(),
    }


def _evidence(given: Mapping[str, Any]) -> Evidence:
    return Evidence(
        **{
            name: [number(value, name) for value in given[name]]
            for name in ("shifts", "controls", "errors", "pairs")
        }
    )
