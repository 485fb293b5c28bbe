"""May the new version go out? d5test gate --old OLD/bin/python --new NEW/bin/python -- SUITE ...

Requirements: exit status 0: passed; 1: regressed, or unsure where that fails; 2: a mistake in the
command line, explained in one line. What follows `--` is a suite, or one of its files, and
pytest's arguments, as of `d5test run`. What is timed on many ranks is run as a whole under each
version, in turns, and compared as stored files are.
"""

import argparse
import sys
from pathlib import Path

from d5test.arguments import Mistake, duration
from d5test.cli import run
from d5test.cli.compare import UNSURE, declare_effect

TIMES, CORPUS = "test_time.py", "test_corpus.py"
FILES = {"operators": (TIMES, CORPUS), "networks": (TIMES,), "distributed": (TIMES,)}
"""What is gated of each suite."""
USAGE = {4: 2, 5: 2}
"""Pytest's exit statuses for a wrong command line, and for one that names no test."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    for side in ("old", "new"):
        parser.add_argument(
            f"--{side}",
            metavar="PYTHON",
            help=f"the {side} version: its Python, its environment, or a backend ./file.py:Name",
        )
    parser.add_argument(
        "--budget", type=duration, metavar="TIME", help="end within 90s, 10m or 1h"
    )
    declare_effect(parser)
    parser.add_argument(
        "--unsure",
        choices=UNSURE,
        default="pass",
        help="whether unsure passes or fails (default: pass)",
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="FILE", help="accepted slowdowns (TOML)"
    )
    parser.add_argument("--report", metavar="FILE", help="write the page of docs/report.md")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="with --old alone: measure the gate itself, its false alarms and its power",
    )
    alone = [f"{suite}/{name}" for suite, names in FILES.items() for name in names]
    parser.add_argument(
        "suite", choices=[*FILES, *alone], help="the suite to run, or a part of one"
    )
    parser.add_argument("arguments", nargs="*", metavar="...", help="arguments of pytest")


def execute(options: argparse.Namespace) -> int:
    """Run pytest; its exit status."""
    import pytest

    if not options.self_test and not (options.old and options.new):
        raise Mistake("give both versions, --old and --new")
    page = Path(options.report) if options.report else None
    if page is not None and (page.is_dir() or not page.parent.is_dir()):
        raise Mistake(f"--report={page}: no file can be written there")
    if options.suite.partition("/")[0] == "distributed":
        return in_turns(options)
    status = int(pytest.main(arguments(options)))
    return USAGE.get(status, status)


def in_turns(options: argparse.Namespace) -> int:
    """Run the times of ranks under both versions, in turns, and compare; its exit status."""
    from d5test.cli import compare, report
    from d5test.client.messages import UnknownBackend
    from d5test.client.registry import interpreter
    from d5test.gate.alternating import Alternating
    from d5test.gate.versions import NEW, OLD, names_backend
    from d5test.plugin.options import GATED

    if options.self_test or options.accept:
        raise Mistake("--self-test and --accept are for what is measured in one process")
    if not any(word.startswith("--np") for word in options.arguments):
        raise Mistake("say on how many ranks: -- distributed --np=4")
    versions = {OLD: options.old, NEW: options.new}
    for version in versions.values():
        if names_backend(version):
            raise Mistake(f"{version} is a backend: give the Pythons of two environments")
    try:
        pythons = {side: interpreter(version) for side, version in versions.items()}
    except UnknownBackend as error:
        raise Mistake(str(error)) from None
    runs = Alternating(pythons, options.arguments, GATED, options.budget).measured()
    sides = {side: ",".join(map(str, files)) for side, files in runs.items()}
    shared = {"effect": options.effect, "results": GATED}
    if options.report:
        asked = {"side": sides[OLD], "new": sides[NEW], "output": options.report}
        report.execute(argparse.Namespace(**asked, format="html", **shared))
    asked = {"old": sides[OLD], "new": sides[NEW], "unsure": options.unsure}
    return compare.execute(argparse.Namespace(**asked, format="text", **shared))


def arguments(options: argparse.Namespace) -> list[str]:
    """Pytest's command line: what is timed and judged, and what the gate is to do with it."""
    from d5test.gate.versions import names_backend

    old, new = options.old, options.new
    if options.self_test:
        old = new = old or sys.executable
    more = list(options.arguments)
    if old and names_backend(old):
        more.append(f"--backend={old}")
    gate = [
        f"--gate-{name}={value}"
        for name, value in (
            ("old", old),
            ("new", new),
            ("budget", options.budget),
            ("effect", options.effect),
            ("unsure", options.unsure),
            ("report", options.report),
            *(("accept", path) for path in options.accept),
        )
        if value is not None
    ]
    if options.self_test:
        gate.append("--gate-self-test")
    suite, _, name = options.suite.partition("/")
    names = (name,) if name else FILES[suite]
    if options.self_test:
        names = (TIMES,)
    folder, *command = run.arguments(suite, [*gate, *more])
    return [*(str(Path(folder) / name) for name in names), *command]
