"""Merge the shards of a suite: d5test merge one.json two.json -o whole.json [pytest's arguments]

Requirements: exit status 2, and the reason in one line, unless the files are all shards of one
run and hold each test once; otherwise the report and the exit status are those of the whole.
"""

import argparse
import json
import tempfile
from pathlib import Path

from d5test.arguments import Mistake


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="what `--shard=I/N --outcomes=FILE` wrote"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the whole run")
    parser.add_argument("--junitxml", type=Path, metavar="FILE", help="write it as JUnit's XML")


def execute(options: argparse.Namespace) -> int:
    """Merge, report; the exit status of the whole."""
    import pytest

    from d5test.cli.run import arguments
    from d5test.files import replace
    from d5test.shards import merged, read

    lines = [json.dumps(event) for event in merged([read(file) for file in options.files])]
    with tempfile.TemporaryDirectory(prefix="d5test-merge-") as folder:
        whole = Path(folder) / "whole.json"
        replace(whole, ended(lines, 0))
        more = [f"--replay={whole}", "-p", "no:cacheprovider"]
        if options.junitxml:
            more.append(f"--junitxml={options.junitxml}")
        status = int(pytest.main(arguments("", more)))
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and status < 5:
        raise Mistake(f"pytest ended with exit status {status}: nothing is written")
    if options.output:
        replace(options.output, ended(lines, status))
    return status


def ended(lines: list[str], status: int) -> str:
    """The text of a run that ended so."""
    return "\n".join([*lines, json.dumps({"event": "end", "status": status}), ""])
