"""A comparison as a table for a terminal, as Markdown for a pull request, as JSON for programs."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table

from d5test.compare import rows
from d5test.compare.comparison import Comparison
from d5test.compare.decision import ACCEPTED
from d5test.compare.words import plain, sentence
from d5test.console import Console

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


def text(comparison: Comparison) -> None:
    """Print it; the verdict is the last line."""
    width = max(shutil.get_terminal_size((LOGGED, 24)).columns, 80)
    console = Console(width=width, highlight=False)
    shown = rows.decisions(comparison)
    if shown:
        console.print(_table(rows.COLUMNS, list(map(rows.row, shown)), STYLES))
    for heading, names in rows.lists(comparison):
        if names:
            console.print(heading, markup=False)
        for name in names:
            console.print(f"  {name}", markup=False, soft_wrap=True)
    differing = rows.environment(comparison)
    if differing:
        console.print(_table(("environment", "old", "new"), differing, {}))
    style = OVERALL[comparison.verdict]
    console.print(f"[{style}]{escape(sentence(comparison))}[/]", soft_wrap=True)


def _table(
    columns: Sequence[str], cells: Sequence[Sequence[str]], styles: Mapping[str, str]
) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, overflow="fold")
    for row in cells:
        shown = (f"[{styles[c]}]{c}[/]" if c in styles else escape(c) for c in row)
        table.add_row(*shown)
    return table


def markdown(comparison: Comparison) -> str:
    """For a pull request; the verdict is the first line."""
    parts = [f"**{safe(sentence(comparison))}**\n"]
    shown = [rows.row(decision) for decision in rows.decisions(comparison)]
    if shown:
        parts.append(grid(rows.COLUMNS, shown))
    for heading, names in rows.lists(comparison):
        if names:
            parts += [f"{heading}\n", "\n".join(f"- {safe(name)}" for name in names) + "\n"]
    differing = rows.environment(comparison)
    if differing:
        parts.append(grid(("environment", "old", "new"), differing))
    return "\n".join(parts)


def grid(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *([safe(c) for c in row] for row in cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def safe(words: str) -> str:
    """Text that is neither Markdown nor HTML: what either obeys is an entity."""
    escaped = html.escape(words, quote=False)
    return "".join(f"&#{ord(c)};" if c in "|`*_[]\\~@#" else c for c in escaped)


def for_programs(comparison: Comparison) -> None:
    """Print it as JSON: everything, with the values of each run."""
    found = {
        "version": VERSION,
        "verdict": comparison.verdict,
        "reason": sentence(comparison),
        "counts": comparison.counts,
        "old": [plain(run.path) for run in comparison.old],
        "new": [plain(run.path) for run in comparison.new],
        "operators_lost": comparison.lost,
        **asdict(comparison.matching),
        "environment": dict(comparison.environment),
        "decisions": [_plain(asdict(decision)) for decision in comparison.decisions],
    }
    print(json.dumps(found, indent=1, allow_nan=False))


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
