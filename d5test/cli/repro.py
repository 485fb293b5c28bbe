"""Run reproducers again: which faults are gone, which are still there?

Requirements: each runs in a process of its own, under the interpreter that showed its fault or the
one that is asked for; what is no reproducer is not run. Exit status 1: a fault is still there;
2: none is, but a file gave no verdict; 0: all are gone.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from d5test.arguments import Mistake

STYLES = {"gone": "green", "still there": "red"}


@dataclass(frozen=True)
class Answer:
    """What came of one file: the interpreter it ran under, the outcome, and what it said of it."""

    file: str
    python: str
    outcome: str
    line: str


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a reproducer, or a folder")
    parser.add_argument(
        "--python", help="another interpreter (default: the one that showed the fault)"
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds for each file (default: 300)"
    )


def execute(options: argparse.Namespace) -> int:
    """Run the files and say what came of them."""
    from d5test.client.messages import UnknownBackend
    from d5test.client.registry import interpreter
    from d5test.reproducer.trial import NoVerdict

    answers: list[Answer] = []
    reasons: list[NoVerdict] = []
    try:
        python = interpreter(options.python) if options.python else None
    except UnknownBackend as error:
        raise Mistake(str(error)) from None
    for path in files(options.files):
        try:
            answers.append(tried(path, python, options.timeout))
        except NoVerdict as reason:
            reasons.append(reason)
    show(answers)
    for why in reasons:
        print(f"d5test repro: {why}", file=sys.stderr)
    if any(answer.outcome == "still there" for answer in answers):
        return 1
    return 2 if reasons else 0


def files(names: list[str]) -> list[Path]:
    """The files; of a folder, those in it, or the folder itself if there are none."""
    return [path for name in names for path in sorted(Path(name).glob("*.py")) or [Path(name)]]


def tried(path: Path, python: str | None, timeout: float) -> Answer:
    """Run one reproducer. Raises `NoVerdict`."""
    from d5test.reproducer import trial
    from d5test.reproducer.mark import NoReproducer, interpreter_of

    if not path.is_file():
        raise trial.NoVerdict(f"there is no {'reproducer in' if path.is_dir() else 'file'} {path}")
    try:
        under = python or interpreter_of(path) or sys.executable
    except NoReproducer as why:
        raise trial.NoVerdict(f"{path} is not a reproducer: {why}") from None
    return Answer(str(path), under, *trial.tried(path, under, timeout))


def show(answers: list[Answer]) -> None:
    """Each file on a line of its own, which can be copied, below its interpreter."""
    from rich.markup import escape

    from d5test.console import Console

    console = Console(soft_wrap=True, highlight=False)
    for python in dict.fromkeys(answer.python for answer in answers):
        console.print(f"under {escape(python)}:")
        for answer in (answer for answer in answers if answer.python == python):
            style = STYLES[answer.outcome]
            console.print(f"  [{style}]{answer.outcome:<11}[/]  {escape(answer.file)}")
            console.print(f"               {escape(answer.line)}")
