"""The command `d5test SUBCOMMAND`: what the command line accepts; one module per subcommand.

`functions` and `kernels` are parts of `coverage`.

Requirements: a mistake is one line with what was probably meant, and exit status 2; what follows
`run SUITE` is pytest's, its usage errors are too. A crash has no verdict's status: what d5test did
not foresee ends with `INTERNAL`.
"""

import argparse
import difflib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from d5test import __version__
from d5test.arguments import Mistake
from d5test.cli import (
    compare,
    corpus,
    coverage,
    doctor,
    fit,
    gate,
    judge,
    known,
    merge,
    native,
    new,
    report,
    repro,
    run,
    simulate,
    verify,
)

COMMANDS = (doctor, run, merge, repro, compare, report, verify, corpus, gate, judge, new, native,
            known, coverage, fit, simulate)  # fmt: skip
MISTAKE, INTERNAL = 2, 3
"""Exit statuses of a wrong command line or file, and of a fault of d5test's own, as pytest's."""
PIPE, INTERRUPTED = 128 + signal.SIGPIPE, 128 + signal.SIGINT
"""Those of who is cut off, as a shell has them: no verdict."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what was probably meant."""

    def error(self, message: str) -> NoReturn:
        """One line, and exit status 2."""
        problem, _, choices = message.partition("(choose from ")
        if choices:
            wrong = problem.rpartition("invalid choice: ")[2].strip().strip("'")
            names = [name.strip(" ')") for name in choices.split(",")]
            close = difflib.get_close_matches(wrong, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(names)}"
            message = f"{problem.strip()}: {hint}"
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = Parser(
        prog="d5test", description="Validates deep-learning software against readable references."
    )
    top.add_argument("--version", action="version", version=f"d5test {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(execute=module.execute)
        module.declare(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status."""
    for stream in (sys.stdout, sys.stderr):  # a path may have characters that the locale lacks
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["run"] and len(words) > 1 and not words[1].startswith("-"):
        options = parser().parse_args(words[:2])
        options.arguments = words[2:]
    else:
        options = parser().parse_args(words)
    try:
        status: int = options.execute(options)
        sys.stdout.flush()
    except Mistake as mistake:
        print(f"d5test {options.command}: {mistake}", file=sys.stderr)
        return MISTAKE
    except BrokenPipeError:  # who reads has enough, as `head` has: nothing more can be said to it
        _say_no_more()
        return PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _say_no_more()
        what = error.filename or "the output cannot be written"
        print(f"d5test {options.command}: {what}: {error.strerror or error}", file=sys.stderr)
        return MISTAKE
    except Exception:  # noqa: BLE001 - whatever it is, it is no verdict
        traceback.print_exc()
        print(
            f"d5test {options.command}: a fault of d5test itself, and no verdict: please report "
            "the lines above",
            file=sys.stderr,
        )
        return INTERNAL
    return status


def _say_no_more() -> None:
    """Let go of what could not be written: Python would try again when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
