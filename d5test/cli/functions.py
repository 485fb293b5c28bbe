"""The part of `d5test coverage` that tells which functions of a framework are judged.

Requirements: each row and form of a backend is a line, with the functions that its cases were
computed by; what is counted was judged here and now.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from d5test.arguments import Mistake, listed

if TYPE_CHECKING:
    from d5test.functions import Line

EXAMPLES = 3
LETTERS = {"float64": "d", "float32": "s", "float16": "h", "bfloat16": "b"}
TITLES = ("operator", "by", "calls", "own", "dtypes")
SUFFIX = ".md"


def execute(options: argparse.Namespace) -> int:
    """Judge, and print; its exit status, 1 where a case was wrong."""
    from d5test.files import replace

    backends, operators = listed([options.backend]), listed([options.operator])
    if options.output is not None and options.output.suffix != SUFFIX:
        raise Mistake(f"--output={options.output}: with --functions its name ends with {SUFFIX}")
    pages: list[str] = []
    wrong = 0
    for backend in backends:
        version, lines, left = of_backend(backend, operators, options.examples or EXAMPLES)
        show(f"{backend} {version}", lines, left)
        wrong += sum(line.faults for line in lines)
        pages += page(backend, version, lines, left)
    if options.output is not None:
        asked = f"--backend={','.join(backends)}"
        asked += f" --operator={','.join(operators)}" if operators else ""
        text = INTRODUCTION.format(asked=asked, output=options.output)
        replace(options.output, "\n".join([text, *pages]) + "\n")
    return int(wrong > 0)


def of_backend(
    backend: str, operators: Sequence[str], examples: int
) -> tuple[str, list[Line], dict[str, tuple[str, ...]]]:
    """A backend's version, its lines, and what none of them calls."""
    from rich.progress import track

    from d5test.client.client import WorkerClient
    from d5test.client.messages import UnknownBackend
    from d5test.console import Console
    from d5test.functions import lines, uncalled
    from d5test.names import BadName, chosen
    from d5test.reference.operators import OPERATORS
    from d5test.timed import BROKEN

    try:
        names = chosen("operator", operators, OPERATORS)
        with WorkerClient(backend) as client:
            seen = Console(stderr=True)
            asked = track(
                names, backend, console=seen, transient=True, disable=not seen.is_terminal
            )
            every = [line for name in asked for line in lines(client, [name], examples)]
            offered = client.invoke("d5test.worker.offer:offer")
            return client.about.version, every, uncalled(offered, every)
    except (BadName, UnknownBackend, *BROKEN) as error:
        raise Mistake(" ".join(str(error).split())) from None


def cells(line: Line) -> tuple[str, ...]:
    """A line of the table, but for the count."""
    from d5test.functions import named

    calls = [name for name in line.called if name not in named(line.form)]
    own = "own" if line.native else "composed"
    dtypes = " ".join(LETTERS[dtype] for dtype in line.dtypes)
    return (line.operator, line.form or "its row", ", ".join(calls), own, dtypes)


def show(title: str, lines: Sequence[Line], left: dict[str, tuple[str, ...]]) -> None:
    """The table on the terminal, of which nothing is cut."""
    print(f"{title} (d, s, h, b: {', '.join(LETTERS)})\n")
    rows = [(*TITLES[:1], "telling", *TITLES[3:], *TITLES[1:3])]
    for line in lines:
        operator, by, calls, own, dtypes = cells(line)
        rows.append((operator, line.cases, own, dtypes, by, calls))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())
    print(f"\n{OWN}:" if left else "")
    for operator, names in left.items():
        print(f"  {operator}: {', '.join(names)}")
    print()


OWN = "An operator's own by their names, and called by no row or form"
INTRODUCTION = """\
# Functions that are judged

Made by `d5test coverage --functions {asked} -o {output}`,
which says on the terminal how many cases of each were telling. Beside the name of a form
stand the functions that it calls, where it does not name them; d, s, h, b are float64,
float32, float16 and bfloat16. A default run asks a form in float32 and in another dtype."""


def page(
    backend: str, version: str, lines: Sequence[Line], left: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    """The table in Markdown."""
    yield from ("", f"## {backend} {version}", "")
    yield f"| {' | '.join(TITLES)} |"
    yield f"|{'---|' * (len(TITLES) - 1)}"
    for line in lines:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells(line))} |"
    if left:
        yield from ("", f"{OWN}:", "")
    for operator, names in left.items():
        yield f"* {operator}: {', '.join(f'`{name}`' for name in names)}"
