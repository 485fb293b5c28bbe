"""Compute every verdict of a page again from its data: d5test verify report.html

Requirements: exit status 0: they are the same; 1: not, a line for each; 2: no page that can be
read, in one line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SHOWN = 20
"""Differences that are told one by one."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("page", metavar="PAGE", help="what `d5test report` wrote")


def execute(options: argparse.Namespace) -> int:
    """Read, compute, compare; its exit status."""
    from d5test.compare import Unreadable

    try:
        from d5test.report import verify
        from d5test.report.page import content_of
    except ImportError as error:
        return _refused(f"{error.name} is missing: pip install 'd5test[report]'")
    path = Path(options.page)
    try:
        found = verify(content_of(path))
    except Unreadable as error:
        return _refused(f"{path}: {error}")
    except OSError as error:
        return _refused(f"{path}: {error.strerror}")
    for line in found.differences[:SHOWN]:
        print(f"not the same: {line}")
    more = len(found.differences) - SHOWN
    if more > 0:
        print(f"and {more} more")
    if not found.differences:
        print(f"the same: {found.count} verdicts computed again from the page's data")
        if found.written_by:
            print(f"not compared: the page's text, which d5test {found.written_by} wrote")
    return int(bool(found.differences))


def _refused(why: str) -> int:
    print(f"d5test verify: {why}", file=sys.stderr)
    return 2
