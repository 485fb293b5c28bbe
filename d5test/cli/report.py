"""Write the page of a comparison or of one version: d5test report OLD NEW -o report.html

Requirements: exit status 0: written, whatever the verdict; 2: the command line or a file is wrong,
in one line.
"""

import argparse

from d5test.arguments import Mistake
from d5test.cli.compare import declare_effect, declare_results

FORMATS = ("html", "markdown")


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "side",
        metavar="FILE",
        help="benchmark JSON of the version that is shown, or of the old one if there is another: "
        "files, folders, 'patterns*', by commas",
    )
    parser.add_argument("new", metavar="NEW", nargs="?", help="the same of the new version")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="the file to write (default: report.html; Markdown is printed)",
    )
    parser.add_argument("--format", choices=FORMATS, default="html")
    declare_effect(parser)
    declare_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Read, compare, write; its exit status."""
    from d5test.compare import Unreadable, read_sides
    from d5test.files import replace

    try:
        from d5test.report import Report, markdown, page
        from d5test.report.content import ROUNDS
    except ImportError as error:
        raise Mistake(f"{error.name} is missing: pip install 'd5test[report]'") from None
    sides = [options.side] if options.new is None else [options.side, options.new]
    try:
        *old, new = read_sides(sides, ROUNDS, options.results)
        report = Report(old[0] if old else [], new, options.effect)
        text = markdown(report) if options.format == "markdown" else page(report)
    except Unreadable as error:
        raise Mistake(str(error)) from None
    path = options.output or ("report.html" if options.format == "html" else None)
    if path is None:
        print(text)
        return 0
    replace(path, text)
    print(f"{report.headline}\n{path}")
    return 0
