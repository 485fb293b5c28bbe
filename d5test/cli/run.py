"""Run a suite with pytest: d5test run operators --backend=torch [arguments of pytest]

Requirements: the suite that comes with this d5test, with its own pytest.ini, whatever project
surrounds the user; paths in pytest's arguments count from where the user stands; pytest's exit
status is passed through.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from d5test.files import folder_of_suites

APART = ("test_corpus.py", "test_time.py")
"""Files that are runs of their own: times, and the corpus."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments. What follows the suite never comes here: it is pytest's."""
    choices = [*suites(), *apart()]
    parser.add_argument(
        "suite", choices=choices, help="the suite to run, or a part that is run alone"
    )
    parser.add_argument("arguments", nargs="*", metavar="...", help="arguments of pytest")


def execute(options: argparse.Namespace) -> int:
    """Run pytest; its exit status."""
    import pytest

    return int(pytest.main(arguments(options.suite, options.arguments)))


def suites() -> list[str]:
    """The suites that hold tests."""
    return sorted({path.parent.name for path in folder_of_suites().glob("*/test_*.py")})


def apart() -> list[str]:
    """What runs only where it is named: times, and the corpus."""
    files = (path for name in APART for path in folder_of_suites().glob(f"*/{name}"))
    return sorted(f"{path.parent.name}/{path.name}" for path in files)


def arguments(suite: str, more: Sequence[str]) -> list[str]:
    """Pytest's command line: neither configuration nor conftest.py of another project counts."""
    root, cache = folder_of_suites(), f"cache_dir={Path.cwd() / '.pytest_cache'}"
    uncached = any(word.endswith("no:cacheprovider") for word in more)  # no such setting then
    return [
        str(root / suite),
        f"--rootdir={root}",
        f"--confcutdir={root}",
        "-c",
        str(root / "pytest.ini"),
        *(() if uncached else ("-o", cache)),
        *more,
    ]
