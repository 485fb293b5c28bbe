"""A comparison as text: a table for a terminal, Markdown for a pull request, JSON.

Requirements: what a file says is shown as text, whatever it holds; nothing obeys it. All but JSON
say the same: what is worse is always shown; of what is unsure or better the largest changes, with
the number of those left out; what is the same is counted.
"""

import html
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from operator import itemgetter
from statistics import median
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table

from d5test.compare.comparison import Comparison
from d5test.compare.decision import ACCEPTED, EXACT, Decision
from d5test.compare.numbers import LONG
from d5test.console import Console
from d5test.metric import ARITHMETIC, RIGHT, Metric, measured

COLUMNS = ("verdict", "change", "limit", "seen from", "old", "new", "what")
"""`limit`: beyond which a change is called one; `seen from`: the least that is nearly always."""
SUITES = ("test_time", "test_corpus", "test_allreduce", "test_scaling", "test_engine_scaling")
"""Tests whose parameters say what they measure; of others the name does."""
MOST = 20
"""Rows of one verdict that is not worse, and names in a list."""
SEVERAL = 3
"""How many are named in a sentence."""
STYLES = {
    "worse": "red",
    ACCEPTED: "magenta",
    "unsure": "yellow",
    "better": "green",
    "same": "dim",
}
OVERALL = {"regressed": "bold red", "unsure": "bold yellow", "passed": "bold green"}
NUMBERS = ("change", "limit", "seen from")
LOGGED = 240
"""Characters of a line where no terminal breaks it: a name that is broken is found by nobody."""
VERSION = 1
"""Of the JSON; raised when a field changes its meaning."""


def plain(text: str) -> str:
    """Text of a stranger's on one line: what is not printable is escaped, what is long is cut."""
    shown = text[: LONG + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
    return shown if len(shown) <= LONG else f"{shown[: LONG - 3]}..."


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
    others = f"{counts['better']} better, {counts['same']} the same, {counts['unsure']} unsure"
    if counts[ACCEPTED]:
        others += f", {counts[ACCEPTED]} worse and accepted"
    if comparison.verdict == "regressed":
        return f"REGRESSED: {'; '.join(reasons(comparison))}. Else {others}."
    if comparison.verdict == "passed":
        return f"PASSED: nothing is worse; {others}."
    changed = len(comparison.matching.changed)
    also = f"; {changed} changed and were not compared" if changed else ""
    if not comparison.blind:
        unsure = "FAILED, SINCE UNSURE" if comparison.strict else "PASSED, BUT UNSURE"
        return f"{unsure}: nothing is known to be worse; {others}{also}."
    nothing = f"{'FAILED, SINCE ' if comparison.strict else ''}NOTHING COULD BE TOLD"
    if not comparison.decisions:
        return f"{nothing}: nothing was compared{also}."
    if not comparison.times:
        return f"{nothing}: {others}{also}."
    return (
        f"{nothing}: none of {len(comparison.times)} benchmarks could have shown a slowdown of "
        f"{percent(comparison.effect)}; {others}{also}."
    )


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
        distinct = {v.reason for v in gone}
        why = f": {plain(gone[0].reason)}" if len(distinct) == 1 else ""
        yield f"{len(gone)} vanished ({_some(short(v.name) for v in gone)}){why}"


def _varied(decisions: Iterable[Decision]) -> list[Decision]:
    """The first of each metric before the second of any, so that few that are named tell most."""
    seen: Counter[str] = Counter()
    turns = []
    for decision in decisions:
        metric = decision.values.metric.name
        turns.append((seen[metric], decision))
        seen[metric] += 1
    return [decision for _, decision in sorted(turns, key=itemgetter(0))]


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


def _some(names: Iterable[str]) -> str:
    return "; ".join(_few(list(names), SEVERAL))


def _few(names: Sequence[str], most: int = MOST) -> list[str]:
    more = len(names) - most
    return [*names[:most], *([f"and {more} more"] if more > 0 else [])]


def shown(comparison: Comparison) -> list[Decision]:
    """What the table shows, worst first."""
    seen: Counter[str] = Counter()
    decisions: list[Decision] = []
    for decision in comparison.decisions:
        seen[decision.verdict] += 1
        few = decision.verdict in ("unsure", "better") and seen[decision.verdict] <= MOST
        if decision.verdict in ("worse", ACCEPTED) or few:
            decisions.append(decision)
    return decisions


def cells(decision: Decision) -> tuple[str, ...]:
    """A row of the table, under `COLUMNS`."""
    values, shares = decision.values, (decision.limit, decision.detectable)
    limit, detectable = ("" if share is None else percent(share) for share in shares)
    return (
        decision.verdict,
        change(decision),
        "exact" if values.metric.gate == "exact" else limit,
        detectable,
        *(
            quantity(median(side), values.metric) if side else "-"
            for side in (values.before, values.after)
        ),
        what(decision),
    )


def lists(comparison: Comparison) -> dict[str, list[str]]:
    """What was left out of the table, and what was not compared, by heading."""
    left = Counter(d.verdict for d in comparison.decisions)
    left.subtract(d.verdict for d in shown(comparison))
    matching = comparison.matching
    every = {
        "kernels changed": _few(list(_exchanges(comparison))),
        "not shown": [f"{left[name]} {name}" for name in ("unsure", "better") if left[name]],
        "reasons": _notes(comparison),
        "operators lost": [plain(operator) for operator in comparison.lost],
        "vanished": _few([f"{short(v.name)}: {plain(v.reason)}" for v in matching.vanished]),
        "new": _few([short(name) for name in matching.new]),
        "renamed": _few([f"{short(a)} is now {short(b)}" for a, b in matching.renamed]),
        "changed, not compared": _few([short(name) for name in matching.changed]),
    }
    return {heading: names for heading, names in every.items() if names}


def _exchanges(comparison: Comparison) -> Iterator[str]:
    """Which benchmarks run other kernels, beside the change of their times, worst first."""
    exchanges = {exchange.name: exchange for exchange in comparison.kernels}
    changes = {d.values.benchmark: change(d) for d in comparison.times}
    for name in dict.fromkeys([*changes, *exchanges]):
        if name in exchanges:
            sides = exchanges[name].gone, exchanges[name].come
            gone, come = (
                ", ".join(_few(list(map(plain, side)), SEVERAL)) or "nothing" for side in sides
            )
            time = f" (time {changes[name]})" if changes.get(name) else ""
            yield f"{short(name)}{time}: {gone} -> {come}"


def _notes(comparison: Comparison) -> list[str]:
    """Reasons that stand in no column, with the number of decisions that they hold for."""
    counts = Counter(
        (d.verdict, d.reason)
        for d in comparison.decisions
        if d.verdict != "same" and d.reason != EXACT and (d.limit is None or d.verdict == ACCEPTED)
    )
    return [f"{count} {verdict}: {why}" for (verdict, why), count in counts.items()]


def environment(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Facts that differ: name, old, new."""
    return [
        (plain(name), plain(old), plain(new))
        for name, (old, new) in comparison.environment.items()
    ]


def text(comparison: Comparison) -> None:
    """Print it; the verdict is the last line."""
    width = max(shutil.get_terminal_size((LOGGED, 24)).columns, 80)
    console = Console(width=width, highlight=False)
    rows = list(map(cells, shown(comparison)))
    if rows:
        console.print(_table(COLUMNS, rows, STYLES))
    for heading, names in lists(comparison).items():
        console.print(heading, markup=False)
        for name in names:
            console.print(f"  {name}", markup=False, soft_wrap=True)
    differing = environment(comparison)
    if differing:
        console.print(_table(("environment", "old", "new"), differing, {}))
    style = OVERALL[comparison.verdict]
    console.print(f"[{style}]{escape(sentence(comparison))}[/]", soft_wrap=True)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]
) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(f"[{styles[c]}]{c}[/]" if c in styles else escape(c) for c in row))
    return table


def markdown(comparison: Comparison) -> str:
    """For a pull request; the verdict is the first line."""
    parts = [f"**{safe(sentence(comparison))}**\n"]
    rows = list(map(cells, shown(comparison)))
    if rows:
        parts.append(grid(COLUMNS, rows))
    for heading, names in lists(comparison).items():
        parts += [f"{heading}\n", "\n".join(f"- {safe(name)}" for name in names) + "\n"]
    differing = environment(comparison)
    if differing:
        parts.append(grid(("environment", "old", "new"), differing))
    return "\n".join(parts)


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *([safe(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def safe(text: str) -> str:
    """Text that is neither Markdown nor HTML: what either obeys is an entity."""
    escaped = html.escape(text, quote=False)
    return "".join(f"&#{ord(c)};" if c in "|`*_[]\\~@#" else c for c in escaped)


def for_programs(comparison: Comparison) -> None:
    """Print it as JSON: everything, with the values of each run."""
    content = {
        "version": VERSION,
        "verdict": comparison.verdict,
        "reason": sentence(comparison),
        "counts": comparison.counts,
        "old": [plain(run.path) for run in comparison.old],
        "new": [plain(run.path) for run in comparison.new],
        "operators_lost": comparison.lost,
        **asdict(comparison.matching),
        "environment": dict(comparison.environment),
        "kernels": [asdict(exchange) for exchange in comparison.kernels],
        "decisions": [_plain(asdict(decision)) for decision in comparison.decisions],
    }
    print(json.dumps(content, indent=1, allow_nan=False))


def _plain(decision: dict[str, Any]) -> dict[str, Any]:
    values = decision.pop("values")
    numbers = {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in decision.items()
    }
    return {**values, **numbers}


FORMATS: Mapping[str, Callable[[Comparison], None]] = {
    "text": text,
    "markdown": lambda comparison: print(markdown(comparison)),
    "json": for_programs,
}
