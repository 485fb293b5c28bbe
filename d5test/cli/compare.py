"""Compare two versions: d5test compare old1.json,old2.json new1.json,new2.json

Requirements: exit status 0: passed; 1: regressed, or unsure where that fails; 2: the command line
or a file is wrong, in one line.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from d5test.arguments import Mistake, share

UNSURE = ("pass", "fail")
FORMATS = ("text", "markdown", "json")


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    for side in ("old", "new"):
        parser.add_argument(
            side,
            metavar=side.upper(),
            help="benchmark JSON of one run or of several: files, folders, 'patterns*', or "
            "commits whose runs are in --results; by commas",
        )
    parser.add_argument(
        "--unsure",
        choices=UNSURE,
        default="pass",
        help="whether unsure passes or fails (default: pass)",
    )
    parser.add_argument("--format", choices=FORMATS, default="text")
    declare_effect(parser)
    declare_results(parser)


def declare_effect(parser: argparse.ArgumentParser) -> None:
    """How large a slowdown is looked for."""
    parser.add_argument(
        "--effect",
        type=share,
        default=0.05,
        metavar="SHARE",
        help="the slowdown to detect (default: 5%%)",
    )


def declare_results(parser: argparse.ArgumentParser) -> None:
    """Where the runs of commits are."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(".benchmarks"),
        metavar="DIR",
        help="folder of runs, for sides that are commits (.benchmarks)",
    )


def execute(options: argparse.Namespace) -> int:
    """Read, compare, print; its exit status."""
    from d5test.compare import Unreadable, compare, read_sides
    from d5test.compare.output import FORMATS

    try:
        old, new = read_sides((options.old, options.new), results=options.results)
        strict = options.unsure == "fail"
        comparison = replace(compare(old, new, options.effect), strict=strict)
    except Unreadable as error:
        raise Mistake(str(error)) from None
    FORMATS[options.format](comparison)
    return int(comparison.verdict == "regressed" or (comparison.verdict == "unsure" and strict))
