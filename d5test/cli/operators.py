"""The part of `d5test coverage` that tells which of ONNX's operators are judged, and how.

Requirements: everything stands in ONNX's schemas, in the references, in the backends' tables or
in what is drawn; nothing is a list that somebody keeps.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from d5test.arguments import Mistake, listed
from d5test.cli.functions import LETTERS, SUFFIX

if TYPE_CHECKING:
    from d5test.case import Case, Operator

FRAMEWORKS = ("torch", "tensorflow", "jax")
NONE = "-"
DTYPE = "float32"
EXAMPLES = 25
"""Cases of a cell in a default run."""


@dataclass(frozen=True)
class Line:
    """An operator of ONNX's newest operator set, or one of ours.

    version  of the reference, and of the newest schema where that is another
    cases    how many of ONNX's node cases with this operator alone the reference passes, of all
    rows     for each backend: whose function computes it, how many further forms, which dtypes
    largest  elements of the largest input that a default run draws
    """

    operator: str
    version: str
    gradient: str
    cases: str
    rows: tuple[str, ...]
    largest: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        return (self.operator, self.version, self.gradient, self.cases, *self.rows, self.largest)


def execute(options: argparse.Namespace) -> int:
    """Print the table, or write the page; its exit status."""
    from d5test.files import replace as written

    backends = listed([options.backend]) or list(FRAMEWORKS)
    if options.output is not None and options.output.suffix != SUFFIX:
        raise Mistake(f"--output={options.output}: its name ends with {SUFFIX}")
    every = list(lines(backends, listed([options.operator])))
    titles = ("operator", "version", "gradient", "node cases", *backends, "largest")
    if options.output is None:
        show(titles, [line.cells for line in every])
    else:
        written(options.output, page(titles, every))
    return 0


def lines(backends: Sequence[str], operators: Sequence[str]) -> Iterator[Line]:
    """The lines of ONNX's operators, and of ours, by name."""
    from d5test.names import BadName, chosen
    from d5test.reference.operators import OPERATORS

    newest = schemas()
    try:
        names = chosen("operator", operators, {**newest, **OPERATORS})
    except BadName as error:
        raise Mistake(str(error)) from None
    tables = {backend: _rows(backend) for backend in backends}
    passed, counted = node_counts()
    for name in sorted(names):
        cls, schema = OPERATORS.get(name), newest.get(name)
        yield Line(
            name,
            _version(cls, schema),
            _gradient(cls, schema),
            f"{passed[name]} of {counted[name]}" if counted[name] else NONE,
            tuple(_row(*table, name) for table in tables.values()),
            NONE if cls is None else f"{largest(cls):,}",
        )


def schemas() -> Mapping[str, Any]:
    """The newest schema of each operator of ONNX's own domain that is not deprecated."""
    try:
        from onnx import defs
    except ImportError:
        raise Mistake("ONNX's schemas are in the package onnx: pip install onnx") from None
    return {s.name: s for s in defs.get_all_schemas() if s.domain == "" and not s.deprecated}


def node_counts() -> tuple[Counter[str], Counter[str]]:
    """For each operator, the node cases that its reference passes, and all of one node."""
    from d5test.problems.node_cases import failure, node_cases, operator_of

    passed, counted = Counter[str](), Counter[str]()
    for name, test in node_cases().items():
        if len(test.model.graph.node) == 1:
            op, _ = operator_of(name)
            operator = op.name if op else test.model.graph.node[0].op_type
            counted[operator] += 1
            passed[operator] += not failure(name)
    return passed, counted


def largest(operator: type[Operator]) -> int:
    """The elements of the largest input that `forward` draws of an operator in float32."""
    from d5test.checks import CHECKS
    from d5test.exploration.draws import seed_of_cell
    from d5test.exploration.explore import Exploration
    from d5test.numerics.judgement import Judgement
    from d5test.outcome.tally import Tally

    sizes = [0]

    def measured(_: object, case: Case) -> Judgement:
        sizes.extend(x.size for x in case.arrays() if x is not None)
        return Judgement(telling=True)

    check = replace(CHECKS["forward"], run=measured)
    tally = Tally("", check.name, operator.__name__, DTYPE)
    drawn = Exploration(None, check, operator, DTYPE, tally, EXAMPLES, lambda _: False)
    drawn.faults(seed_of_cell(check, operator.__name__, DTYPE, 0))
    return max(sizes)


def _version(cls: type[Operator] | None, schema: Any) -> str:
    newest = "" if schema is None else str(schema.since_version)
    if cls is None:
        return f"{NONE} ({newest})"
    if schema is None:
        return f"{cls.since} of {cls.domain}"
    return newest if cls.since == schema.since_version else f"{cls.since} ({newest})"


def _gradient(cls: type[Operator] | None, schema: Any) -> str:
    """By hand, derived, or `missing`: ONNX calls an input differentiable, and there is none."""
    from d5test.case import Operator
    from d5test.formula import derived

    if cls is not None and cls.backward is not Operator.backward:
        return "derived" if cls.backward is derived else "by hand"
    inputs = () if schema is None else schema.inputs
    slopes = any(i.differentiation_category.name == "Differentiable" for i in inputs)
    return "missing" if slopes else NONE


Rows = tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]


def _rows(backend: str) -> Rows:
    """The rows and the forms of a backend, by operator."""
    from d5test.client.client import WorkerClient
    from d5test.client.messages import UnknownBackend
    from d5test.names import BadName
    from d5test.timed import BROKEN

    try:
        with WorkerClient(backend) as client:
            return client.about.rows, client.about.forms
    except (BadName, UnknownBackend, *BROKEN) as error:
        raise Mistake(" ".join(str(error).split())) from None


def _row(rows: Mapping[str, Any], forms: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Whose function a row calls, further forms, and the dtypes where some are missing."""
    if name not in rows:
        return NONE
    row, further = rows[name], len(forms.get(name, ()))
    words = "own" if row.native else "composed"
    words += f" +{further}" if further else ""
    dtypes = [letter for dtype, letter in LETTERS.items() if dtype in row.dtypes]
    return words if len(dtypes) == len(LETTERS) else f"{words}, {' '.join(dtypes)}"


def show(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The table on the terminal, and what it amounts to."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())


INTRODUCTION = """\
# ONNX's operators

Made by `d5test coverage -o docs/coverage.md`, from the schemas of onnx {onnx}, the references, the
backends' tables and what is drawn.

* **version**: the operator set whose meaning the reference has; in parentheses the newest, where
  that is another.
* **gradient**: written by hand, or derived from the forward; `missing` where ONNX calls an input
  differentiable.
* **node cases**: those of ONNX with this operator alone that the reference passes. The others are
  text, sequences, or in formats that the reference does not have.
* **{backends}**: whether the framework's own function is judged, or several that we compose; how
  many further forms; and the dtypes, where some are missing: d, s, h, b are {dtypes}.
* **largest**: elements of the largest input that `forward` draws in a default run.

{count} of {every} operators have a reference, {slopes} of the {differentiable} that are
differentiable a gradient. Of ONNX's {all_cases:,} node cases {cases:,} have one node; the
references pass {passed:,} of these.
"""


def page(titles: Sequence[str], every: Sequence[Line]) -> str:
    """The page in Markdown."""
    import onnx

    from d5test.problems.node_cases import node_cases

    newest = schemas()
    of_onnx = [line for line in every if line.operator in newest]
    sums = [line.cases.split(" of ") for line in every if line.cases != NONE]
    text = INTRODUCTION.format(
        onnx=onnx.__version__,
        backends=", ".join(titles[4:-1]),
        dtypes=", ".join(LETTERS),
        count=sum(not line.version.startswith(NONE) for line in of_onnx),
        every=len(of_onnx),
        slopes=sum(line.gradient in ("by hand", "derived") for line in of_onnx),
        differentiable=sum(line.gradient != NONE for line in of_onnx),
        all_cases=len(node_cases()),
        passed=sum(int(passed) for passed, _ in sums),
        cases=sum(int(count) for _, count in sums),
    )
    rule = "|" + "---|" * len(titles)
    cells = [" | ".join(row) for row in (titles, *(line.cells for line in every))]
    return "\n".join([text, f"| {cells[0]} |", rule, *(f"| {row} |" for row in cells[1:])]) + "\n"
