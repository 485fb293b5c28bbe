"""Compute every verdict of a page again from its data: d5test verify report.html

Requirements: exit status 0: they are the same; 1: not, a line for each; 2: no page that can be
read, in one line.
"""

import argparse
from pathlib import Path

from d5test.arguments import Mistake

SHOWN = 20
"""Differences that are printed one by one."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("page", metavar="PAGE", help="a page that `d5test report` wrote")


def execute(options: argparse.Namespace) -> int:
    """Read, compute, compare; its exit status."""
    from d5test.compare import Unreadable

    try:
        from d5test.report import verify
        from d5test.report.page import content_of
    except ImportError as error:
        raise Mistake(f"{error.name} is missing: pip install 'd5test[report]'") from None
    path = Path(options.page)
    try:
        verification = verify(content_of(path))
    except Unreadable as error:
        raise Mistake(f"{path}: {error}") from None
    for line in verification.differences[:SHOWN]:
        print(f"not the same: {line}")
    more = len(verification.differences) - SHOWN
    if more > 0:
        print(f"and {more} more")
    if not verification.differences:
        print(f"the same: {verification.count} verdicts computed again from the page's data")
        if verification.written_by:
            print(f"not compared: the page's text, which d5test {verification.written_by} wrote")
    return int(bool(verification.differences))
