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
    """Run the files, and say what came of each as soon as it is known."""
    from d5test.client.messages import UnknownBackend
    from d5test.client.registry import interpreter
    from d5test.reproducer.trial import NoVerdict

    answers: list[Answer] = []
    reasons: list[NoVerdict] = []
    try:
        python = interpreter(options.python) if options.python else None
    except UnknownBackend as error:
        raise Mistake(str(error)) from None
    under = ""
    for path in files(options.files):
        try:
            answers.append(tried(path, python, options.timeout))
        except NoVerdict as reason:
            reasons.append(reason)
            print(f"d5test repro: {reason}", file=sys.stderr)
        else:
            show(answers[-1], under)
            under = answers[-1].python
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


def show(answer: Answer, under: str) -> None:
    """A file on a line of its own, which can be copied; its interpreter where it is another one.

    `under` is the interpreter of the file before.
    """
    from rich.markup import escape

    from d5test.console import Console

    console = Console(soft_wrap=True, highlight=False)
    if answer.python != under:
        console.print(f"under {escape(answer.python)}:")
    style = STYLES[answer.outcome]
    console.print(f"  [{style}]{answer.outcome:<11}[/]  {escape(answer.file)}")
    console.print(f"               {escape(answer.line)}")
    sys.stdout.flush()
