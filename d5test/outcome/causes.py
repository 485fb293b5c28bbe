"""Faults grouped by what probably caused them, from tallies alone.

One missing kernel, one wrong row or one crash shows in many checks and dtypes. Faults that raised
the same words, or are of the same kind on the same operator, count as one cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d5test.outcome.tally import Tally


@dataclass(frozen=True)
class Cause:
    """Faults that probably have one cause.

    faults  each with the tally that it belongs to; the first has the shortest reproducer
    """

    backend: str
    faults: tuple[tuple[Tally, dict[str, Any]], ...]

    @property
    def headline(self) -> str:
        """That of the first fault."""
        return str(self.faults[0][1]["text"])

    @property
    def reproducer(self) -> str:
        """The path of the shortest reproducer; empty if there is none."""
        return str(self.faults[0][1]["reproducer"])

    @property
    def cells(self) -> str:
        """Where it shows: operators, checks and dtypes."""
        parts = [
            sorted({getattr(tally, name) for tally, _ in self.faults} - {""})
            for name in ("operator", "check", "dtype")
        ]
        return "; ".join(shortened(part) for part in parts if part)


def causes(tallies: Iterable[Tally]) -> list[Cause]:
    """The causes of all faults, those that show most often first."""
    groups: dict[tuple[str, str], list[tuple[Tally, dict[str, Any]]]] = {}
    for tally in tallies:
        for fault in tally.faults:
            groups.setdefault((tally.backend, fault["cause"]), []).append((tally, fault))
    made = [
        Cause(backend, tuple(sorted(faults, key=lambda pair: _length(pair[1]["reproducer"]))))
        for (backend, _), faults in groups.items()
    ]
    return sorted(made, key=lambda cause: -len(cause.faults))


def shortened(names: list[str], most: int = 6) -> str:
    """A list in a line, cut where it is long."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _length(path: str) -> float:
    """The size of a reproducer; one that is not there is the longest."""
    return Path(path).stat().st_size if path and Path(path).is_file() else float("inf")
