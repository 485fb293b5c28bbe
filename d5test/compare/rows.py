"""What the outputs show, the same in each: rows worst first, lists, and the environment.

Requirements: what is worse is always shown; of what is unsure or better the largest changes, with
the number of those left out; what is the same is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from d5test.compare.comparison import Comparison
from d5test.compare.decision import ACCEPTED, EXACT, Decision
from d5test.compare.words import change, percent, plain, quantity, short, vanished, what

COLUMNS = ("verdict", "change", "limit", "seen from", "old", "new", "what")
"""`limit`: beyond which a change is called one; `seen from`: the least that is nearly always."""
MOST = 20
"""Rows of one verdict that is not worse, and names in a list."""


def decisions(comparison: Comparison) -> list[Decision]:
    """What the table shows, worst first."""
    shown: list[Decision] = []
    seen: Counter[str] = Counter()
    for decision in comparison.decisions:
        seen[decision.verdict] += 1
        few = decision.verdict in ("unsure", "better") and seen[decision.verdict] <= MOST
        if decision.verdict in ("worse", ACCEPTED) or few:
            shown.append(decision)
    return shown


def row(decision: Decision) -> tuple[str, ...]:
    """Its cells, under `COLUMNS`."""
    values = decision.values
    return (
        decision.verdict,
        change(decision),
        "exact" if values.metric.gate == "exact" else _percent(decision.limit),
        _percent(decision.detectable),
        _side(values.before, decision),
        _side(values.after, decision),
        what(decision),
    )


def lists(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    """What was left out of the table, and what was not compared, by heading."""
    left = Counter(d.verdict for d in comparison.decisions)
    left.subtract(d.verdict for d in decisions(comparison))
    hidden = [f"{left[verdict]} {verdict}" for verdict in ("unsure", "better") if left[verdict]]
    found = comparison.matching
    yield ("not shown", hidden)
    yield ("reasons", _notes(comparison))
    yield ("operators lost", [plain(operator) for operator in comparison.lost])
    yield ("vanished", _few([vanished(gone) for gone in found.vanished]))
    yield ("new", _few([short(name) for name in found.new]))
    yield ("renamed", _few([f"{short(a)} is now {short(b)}" for a, b in found.renamed]))
    yield ("changed, not compared", _few([short(name) for name in found.changed]))


def environment(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Facts that differ: name, old, new."""
    return [
        (plain(name), plain(old), plain(new))
        for name, (old, new) in comparison.environment.items()
    ]


def _side(values: Sequence[float], decision: Decision) -> str:
    if not values:
        return "-"
    return quantity(median(values), decision.values.metric)


def _percent(share: float | None) -> str:
    return "" if share is None else percent(share)


def _notes(comparison: Comparison) -> list[str]:
    """Reasons that stand in no column, with the number of decisions that they hold for."""
    untold = [
        d
        for d in comparison.decisions
        if d.verdict != "same" and (d.limit is None or d.verdict == ACCEPTED)
    ]
    counts = Counter((d.verdict, d.reason) for d in untold if d.reason != EXACT)
    return [f"{count} {verdict}: {why}" for (verdict, why), count in counts.items()]


def _few(names: Sequence[str]) -> list[str]:
    more = len(names) - MOST
    return [*names[:MOST], *([f"and {more} more"] if more > 0 else [])]
