"""A coverage of native functions as lines for a terminal, as Markdown, and as JSON.

Requirements: a line for each cell as soon as it is known; names of functions by operator, those
that only real problems enter; JSON has all that was entered.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from d5test.client.messages import BackendInfo
from d5test.compare.output import grid, safe
from d5test.files import replace
from d5test.kernels.coverage import Cell, Wish
from d5test.kernels.symbols import readable
from d5test.names import plural

SUFFIXES = (".json", ".md")
VERSION = 1
"""Of the JSON; raised when a field changes its meaning."""
COLUMNS = ("operator", "dtype", "telling", "problems", "drawn", "real", "only real", "only drawn")
WIDTHS = (22, 9, 8, 9, 7, 7, 10, 11)
MOST = 8
"""Calls that are shown of a cell, and functions of each."""


def heading(about: BackendInfo, wish: Wish) -> str:
    """What was asked of whom, and the heads of the columns."""
    return f"{described(about, wish)}\n\n{_aligned(COLUMNS)}"


def described(about: BackendInfo, wish: Wish) -> str:
    """What was asked of whom, in a line."""
    threads = plural(about.threads, "thread")
    return (
        f"functions of {about.name} {about.version} on {about.device_name} with {threads}, "
        f"entered by telling cases of {wish.examples} examples (--sizes={wish.sizes} "
        f"--seed={wish.seed}) and by real problems"
    )


def line(cell: Cell) -> str:
    """A cell on the terminal."""
    broken = f"  {cell.broken} requests failed" if cell.broken else ""
    return _aligned(_fields(cell)) + (f"  {cell.why}" if cell.why else broken)


def names(cells: Iterable[Cell]) -> str:
    """What only real problems enter, for the terminal."""
    lines = []
    for cell in cells:
        if cell.only_real:
            lines += ["", f"{title(cell)}, first by"]
            calls = by_call(cell)
            for call, functions in calls[:MOST]:
                lines.append(f"  {call}")
                lines += [f"    {name}" for name in functions[:MOST]]
                lines += [f"    and {len(functions) - MOST} more"] * (len(functions) > MOST)
            lines += [f"  and {len(calls) - MOST} calls more"] * (len(calls) > MOST)
    return "\n".join(lines)


def title(cell: Cell) -> str:
    """What is listed of a cell."""
    return f"{cell.operator} in {cell.dtype}: {len(cell.only_real)} entered by real problems only"


def by_call(cell: Cell) -> list[tuple[str, list[str]]]:
    """The calls that enter what no drawn case does, and what they enter first, by its name.

    The call that enters most comes first. A name that several functions have stands once.
    """
    calls: dict[str, dict[str, int]] = {}
    for function in cell.only_real:
        counts, name = calls.setdefault(cell.real[function], {}), readable(function)
        counts[name] = counts.get(name, 0) + 1
    return [
        (call, [name if n == 1 else f"{name} ({n} times)" for name, n in sorted(counts.items())])
        for call, counts in sorted(calls.items(), key=lambda pair: -sum(pair[1].values()))
    ]


def markdown(about: BackendInfo, wish: Wish, cells: Sequence[Cell]) -> str:
    """The page."""
    parts = [f"# Native functions entered\n\n{described(about, wish)}.\n"]
    parts.append(grid(COLUMNS, [_fields(cell) for cell in cells]))
    for cell in cells:
        if cell.only_real:
            parts.append(f"## {title(cell)}\n")
        for call, functions in by_call(cell):
            parts.append(f"{safe(call)}\n\n" + "".join(f"    {name}\n" for name in functions))
    return "\n".join(parts)


def content(about: BackendInfo, wish: Wish, cells: Sequence[Cell]) -> dict[str, Any]:
    """What the JSON holds."""
    return {
        "version": VERSION,
        "backend": about.name,
        "framework": {about.framework: about.version},
        "device": about.device_name,
        "threads": about.threads,
        "examples": wish.examples,
        "sizes": wish.sizes,
        "seed": wish.seed,
        "cells": [_plain(cell) for cell in cells],
    }


def write(path: Path, about: BackendInfo, wish: Wish, cells: Sequence[Cell]) -> None:
    """The file of that name, as its suffix says. Raises OSError."""
    if path.suffix == ".json":
        replace(path, json.dumps(content(about, wish, cells), indent=1))
    else:
        replace(path, markdown(about, wish, cells))


def _plain(cell: Cell) -> Mapping[str, Any]:
    kinds = {
        "both": cell.drawn & cell.real.keys(),
        "real": cell.only_real,
        "drawn": cell.only_drawn,
    }
    return {
        **{name: getattr(cell, name) for name in
           ("operator", "dtype", "judged", "telling", "problems", "broken", "why")},
        "functions": {kind: sorted(set(map(readable, some))) for kind, some in kinds.items()},
        "counts": {kind: len(some) for kind, some in kinds.items()},
        "first": dict(by_call(cell)),
    }  # fmt: skip


def _fields(cell: Cell) -> tuple[str, ...]:
    numbers = (
        cell.telling, cell.problems, len(cell.drawn), len(cell.real), len(cell.only_real),
        len(cell.only_drawn),
    )  # fmt: skip
    if not cell.problems:  # nothing to compare with
        return (cell.operator, cell.dtype, *map(str, numbers[:3]), "-", "-", "-")
    return (cell.operator, cell.dtype, *map(str, numbers))


def _aligned(fields: Sequence[str]) -> str:
    pairs = zip(fields, WIDTHS, strict=True)
    return "".join(
        f"{text:<{width}}" if k < 2 else f"{text:>{width}}"
        for k, (text, width) in enumerate(pairs)
    )
