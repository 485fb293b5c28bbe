"""Numbers and verdicts in words: for the table, for Markdown, for the report.

Requirements: what a file says is shown as text, whatever it holds; nothing obeys it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter

from d5test.compare.comparison import Comparison
from d5test.compare.decision import ACCEPTED, Decision
from d5test.compare.matching import Vanished
from d5test.metric import ARITHMETIC, RIGHT, Metric, measured

LONGEST = 160
SUITES = ("test_time", "test_corpus", "test_allreduce", "test_scaling")
"""Tests whose parameters say what they measure; of others the name does."""
SEVERAL = 3
"""How many are named in a sentence."""


def plain(text: str) -> str:
    """Text of a stranger's on one line: what is not printable is escaped, what is long is cut."""
    shown = text[: LONGEST + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


def quantity(value: float, metric: Metric) -> str:
    """A value with its unit."""
    return plain(measured(value, metric))


def change(decision: Decision) -> str:
    """The relative change, with its sign."""
    if decision.values.metric in (ARITHMETIC, RIGHT) or decision.change is None:
        return ""
    return percent(decision.change, "+")


def percent(share: float, sign: str = "-") -> str:
    """A relative change; a large one as a factor."""
    return f"{share:{sign}.1%}" if abs(share) < 9.995 else f"x {1 + share:.4g}"


def sentence(comparison: Comparison) -> str:
    """The verdict and its reason, in one line."""
    counts = comparison.counts
    told = f"{counts['better']} better, {counts['same']} the same, {counts['unsure']} unsure"
    if counts[ACCEPTED]:
        told += f", {counts[ACCEPTED]} worse and accepted"
    if comparison.verdict == "regressed":
        return f"REGRESSED: {'; '.join(reasons(comparison))}. Else {told}."
    found = comparison.matching.changed
    also = f"; {len(found)} changed and were not compared" if found else ""
    if comparison.verdict == "unsure" and comparison.blind:
        nothing = "NOTHING COULD BE TOLD"
        nothing = f"FAILED, SINCE {nothing}" if comparison.strict else nothing
        if not comparison.decisions:
            return f"{nothing}: nothing was compared{also}."
        if not comparison.timed:
            return f"{nothing}: {told}{also}."
        return (
            f"{nothing}: none of {comparison.timed} benchmarks could have shown a slowdown of "
            f"{percent(comparison.effect)}; {told}{also}."
        )
    if comparison.verdict == "unsure":
        unsure = "FAILED, SINCE UNSURE" if comparison.strict else "PASSED, BUT UNSURE"
        return f"{unsure}: nothing is known to be worse; {told}{also}."
    return f"PASSED: nothing is worse; {told}."


def reasons(comparison: Comparison) -> Iterator[str]:
    """Why it regressed."""
    vanished = comparison.matching.vanished
    wrong = [v for v in vanished if v.wrong]
    if wrong:
        yield f"{len(wrong)} with wrong outputs ({_some(short(v.name) for v in wrong)})"
    worse = [d for d in comparison.decisions if d.verdict == "worse"]
    if worse:
        yield f"{len(worse)} worse ({_some(map(_named, _varied(worse)))})"
    if comparison.lost:
        yield f"operator lost: {_some(map(plain, comparison.lost))}"
    gone = [v for v in vanished if not v.wrong]
    if gone:
        why = {v.reason for v in gone}
        each = f": {plain(why.pop())}" if len(why) == 1 else ""
        yield f"{len(gone)} vanished ({_some(short(v.name) for v in gone)}){each}"


def _varied(decisions: Iterable[Decision]) -> list[Decision]:
    """The first of each metric before the second of any, so that few that are named tell most."""
    seen: Counter[str] = Counter()
    turns = []
    for decision in decisions:
        metric = decision.values.metric.name
        turns.append((seen[metric], decision))
        seen[metric] += 1
    return [decision for _, decision in sorted(turns, key=itemgetter(0))]


def vanished(gone: Vanished) -> str:
    """A benchmark that vanished, with the reason."""
    return f"{short(gone.name)}: {plain(gone.reason)}"


def short(name: str) -> str:
    """A benchmark's name without the path of its file; of those of the suites its parameters."""
    path, bracket, inner = name.partition("[")
    test = path.rpartition("::")[2]
    return plain(inner.removesuffix("]") if test in SUITES else f"{test}{bracket}{inner}")


def what(decision: Decision) -> str:
    """The metric and the benchmark."""
    values = decision.values
    return f"{plain(values.metric.name)} of {short(values.benchmark)}"


def _named(decision: Decision) -> str:
    if decision.values.metric == RIGHT:
        return f"wrong outputs of {short(decision.values.benchmark)}"
    return f"{what(decision)} {change(decision)}".rstrip()


def _some(words: Iterable[str]) -> str:
    every = list(words)
    more = len(every) - SEVERAL
    return "; ".join(every[:SEVERAL]) + (f"; and {more} more" if more > 0 else "")
