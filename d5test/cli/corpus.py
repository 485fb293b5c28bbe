"""The corpus, on which accuracy is compared between versions: what it holds, export, and make.

Requirements: what is in a corpus never changes: `make` adds cases of what has none, and raises the
version. A mistake is one line, and exit status 2.
"""

from __future__ import annotations

import argparse
import difflib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from d5test.arguments import Mistake, listed

if TYPE_CHECKING:
    from d5test.problems.corpus import Corpus


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    export = actions.add_parser("export", help="write the cases as ONNX test data, with bars")
    export.add_argument(
        "folder", type=Path, metavar="FOLDER", help="where to write a folder for each case"
    )
    export.add_argument(
        "--operator", default="", metavar="NAME[,NAME]", help="only these operators"
    )
    make = actions.add_parser("make", help="add cases of operators that have none")
    make.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="another file than d5test's own corpus"
    )
    make.add_argument(
        "--seed", type=int, default=0, metavar="N", help="draw other cases (default: 0)"
    )


def execute(options: argparse.Namespace) -> int:
    """Do what is asked for; its exit status."""
    from d5test.problems.corpus import FILE, Damaged, corpus

    try:
        if options.action == "make":
            return made(options.file or FILE, options.seed)
        current = corpus()
        if options.action == "export":
            return exported(current, options.folder, options.operator)
    except Damaged as error:
        raise Mistake(f"{getattr(options, 'file', None) or FILE}: {error}") from None
    show(current)
    return 0


def show(corpus: Corpus) -> None:
    """What a corpus holds."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = Counter((p.case.op.name, p.case.dtype) for p in corpus.problems)
    operators = dict.fromkeys(name for name, _ in cells)
    dtypes = dict.fromkeys(dtype for _, dtype in cells)
    table = Table("operator", *dtypes, box=box.SIMPLE)
    for name in operators:
        table.add_row(name, *(str(cells[name, dtype] or "-") for dtype in dtypes))
    console = Console()
    console.print(table)
    console.print(
        f"corpus {corpus.version} ({corpus.hash}): {len(corpus.problems)} cases of "
        f"{len(operators)} operators",
        highlight=False,
    )


def exported(corpus: Corpus, folder: Path, operators: str) -> int:
    """Write cases as ONNX test data."""
    from d5test.problems.exporting import export

    names = listed([operators])
    known = Counter(problem.case.op.name for problem in corpus.problems)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`d5test corpus` lists them"
            raise Mistake(f"no operator {name!r} in it: {hint}")
    chosen = set(names) or known.keys()
    left = export(corpus, folder, chosen)
    count = sum(known[name] for name in chosen) - len(left)
    print(f"{count} cases of corpus {corpus.version} ({corpus.hash}) in {folder}")
    for name, reason in left.items():
        print(f"left out: {name}: {reason}")
    return 0


def made(path: Path, seed: int) -> int:
    """Write a file with cases for what has none in it."""
    from d5test.files import replace
    from d5test.problems.corpus import Corpus, read
    from d5test.problems.freezing import extended

    before = read(path) if path.exists() else Corpus()
    after = extended(before, seed)
    if after is before:
        print(f"{path}: nothing to add to corpus {before.version} ({before.hash})")
        return 0
    replace(path, after.text())
    added = len(after.problems) - len(before.problems)
    print(f"{path}: corpus {after.version} ({after.hash}), with {added} cases more")
    line = f'{after.version}: "{after.hash}",'
    print(f"to release it, add to RELEASED in tests/problems/test_corpus.py: {line}")
    return 0
