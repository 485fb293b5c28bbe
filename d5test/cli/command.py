"""`d5test SUBCOMMAND`: what the command line accepts.

Requirements: a mistake is one line with what was probably meant, and exit status 2; what follows
`run SUITE` is pytest's, its usage errors are too.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from d5test import __version__
from d5test.cli import compare, corpus, doctor, gate, native, new, report, repro, run, verify

COMMANDS = {
    "doctor": doctor,
    "run": run,
    "repro": repro,
    "compare": compare,
    "report": report,
    "verify": verify,
    "corpus": corpus,
    "gate": gate,
    "new": new,
    "native": native,
}
PIPE = 128 + signal.SIGPIPE
"""The exit status of who is cut off, as a shell has it: no verdict."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what was probably meant."""

    def error(self, message: str) -> NoReturn:
        """One line, and exit status 2."""
        given, _, choices = message.partition("(choose from ")
        if choices:
            wrong = given.rpartition("invalid choice: ")[2].strip().strip("'")
            names = [name.strip(" ')") for name in choices.split(",")]
            close = difflib.get_close_matches(wrong, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(names)}"
            message = f"{given.strip()}: {hint}"
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="d5test", description="Validates deep-learning software against readable references."
    )
    top.add_argument("--version", action="version", version=f"d5test {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=summary, description=summary)
        module.declare(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status."""
    for stream in (sys.stdout, sys.stderr):  # a path may have characters that the locale lacks
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"] and len(given) > 1 and not given[1].startswith("-"):
        options = parser().parse_args(given[:2])
        options.arguments = given[2:]
    else:
        options = parser().parse_args(given)
    try:
        status: int = COMMANDS[options.command].execute(options)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has enough, as `head` has: nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE
    return status
