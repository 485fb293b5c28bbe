"""List the known failures of frameworks, or write docs/found.md from them.

Requirements: the rows are those of `suites/known`; no framework is imported.
"""

import argparse

from d5test.arguments import Mistake


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--page", action="store_true", help="the page docs/found.md, on stdout")
    parser.add_argument("--backend", metavar="NAME", help="only this framework")


def execute(options: argparse.Namespace) -> int:
    """Print a line for each fault, or the page."""
    from d5test.checks import CHECKS
    from d5test.known.reading import Unreadable, shipped_files
    from d5test.known.writing import NO_CASE, page, treatment

    try:
        files = shipped_files(CHECKS)
    except Unreadable as error:
        raise Mistake(str(error)) from None
    if options.backend and options.backend not in files:
        raise Mistake(f"nothing is known of {options.backend!r}; known: {', '.join(files)}")
    chosen = {n: f for n, f in files.items() if options.backend in (None, n)}
    if options.page:
        print(page(chosen), end="")
        return 0
    for name, (_, rows, findings) in chosen.items():
        for row in rows:
            print(f"{name} {row.versions}  {', '.join(row.operators)}: {row.reason}"
                  f"  ({treatment(row)}, until {row.expires})")  # fmt: skip
        for finding in findings:
            print(f"{finding.package} {finding.versions}  {finding.about}: {finding.reason}"
                  f"  ({NO_CASE})")  # fmt: skip
    return 0
