"""Run reproducers again: which faults are gone, which are still there?

Requirements: each runs in a process of its own, under the interpreter that is asked for. Exit
status 0: all are gone; 1: one is still there; 2: one could not be tried.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OUTCOMES = {0: "gone", 1: "still there", 2: "cannot be tried"}
STYLES = {"gone": "green", "still there": "red", "cannot be tried": "yellow"}


@dataclass(frozen=True)
class Answer:
    """What came of one file: the outcome, and what it said of it."""

    file: str
    outcome: str
    line: str


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a reproducer, or a folder")
    parser.add_argument("--python", default=sys.executable, help="another interpreter")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each")


def execute(options: argparse.Namespace) -> int:
    """Run the files and say what came of them."""
    from rich import box
    from rich.table import Table

    from d5test.console import Console

    answers = []
    for path in found(options.files):
        if not path.is_file():
            print(f"d5test repro: there is no file {path}", file=sys.stderr)
            return 2
        answers.append(tried(path, options.python, options.timeout))
    table = Table(box=box.SIMPLE)
    for heading in ("file", "outcome", "what it says"):
        table.add_column(heading, overflow="fold")
    for answer in answers:
        style = STYLES[answer.outcome]
        table.add_row(answer.file, f"[{style}]{answer.outcome}[/]", _escaped(answer.line))
    Console().print(table)
    outcomes = {answer.outcome for answer in answers}
    if "cannot be tried" in outcomes:
        return 2
    return int("still there" in outcomes)


def found(names: list[str]) -> list[Path]:
    """The files; of a folder, those in it."""
    paths = []
    for name in names:
        path = Path(name)
        paths += sorted(path.glob("*.py")) if path.is_dir() else [path]
    return paths


def tried(path: Path, python: str, timeout: float) -> Answer:
    """Run one reproducer. One that dies by a signal or gives no answer shows its fault."""
    try:
        done = subprocess.run(
            [python, str(path)], capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(str(path), "still there", f"no answer within {timeout:g} s")
    except OSError as error:
        return Answer(str(path), "cannot be tried", f"{python}: {error.strerror}")
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    outcome = "still there" if done.returncode < 0 else OUTCOMES.get(done.returncode)
    return Answer(str(path), outcome or "cannot be tried", said[-1] if said else "")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
