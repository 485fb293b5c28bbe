"""Which functions of a framework are judged: each row and form, and what none of them calls.

Requirements: a number of telling cases is counted where they are judged, in cases that are drawn
here, as `pytest suites/operators` draws them; nothing is estimated. A function is called `own`
where it computes all by itself. What a framework offers is compared with what is called by names,
since only names say what a function is for.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from d5test.case import FLOATS, Case
from d5test.checks import CHECKS
from d5test.checks.check import Check, supported
from d5test.client.messages import RowInfo
from d5test.exploration.draws import seed_of_cell
from d5test.exploration.explore import Exploration
from d5test.known.reading import known_of
from d5test.numerics.judgement import Judgement
from d5test.outcome.assessment import Assessment
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS

DTYPE = "float32"
WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
RANKS = re.compile(r"([\w.]+)([12])([dD]), (2[dD], )?3[dD]")
RANK = re.compile(r"(?<=[a-zA-Z])[123][dD]$")
"""The number of axes that a function is for."""
SEVERAL = 3
"""A function by which more operators than these are computed is none's own: `vmap`, `reshape`."""


@dataclass(frozen=True)
class Line:
    """A row or a form of an operator.

    form     empty: the row
    native   whether one function computes all
    called   the functions that its cases were computed by
    dtypes   those in which it is asked
    telling  how many of `judged` cases were strict enough to expose a wrong result
    faults   how many kinds of fault its cases showed
    """

    operator: str
    form: str
    native: bool
    called: tuple[str, ...]
    dtypes: tuple[str, ...]
    telling: int = 0
    judged: int = 0
    faults: int = 0

    @property
    def cases(self) -> str:
        """The cases in words."""
        wrong = f", {self.faults} wrong" if self.faults else ""
        return f"{self.telling} of {self.judged}{wrong}"


@dataclass
class Recorded:
    """A check that notes what its cases were computed by."""

    check: Check
    names: dict[str, None] = field(default_factory=dict)

    def run(self, client: Any, case: Case) -> Judgement:
        """The check's judgement."""
        judgement = self.check.run(client, case)
        self.names.update(dict.fromkeys(client.record(case.op, case.arrays(), case.form).names))
        return judgement


def lines(client: Any, operators: Iterable[str], examples: int) -> Iterator[Line]:
    """The row of each operator and its forms, each asked in `examples` cases.

    In float32, or where it has none in the first dtype that it has.
    """
    client.known = known_of(client.about, CHECKS)
    for operator in operators:
        row = client.about.rows.get(operator)
        if row is None:
            continue
        yield _line(client, CHECKS["forward"], operator, "", row, examples)
        for form, facts in client.about.forms.get(operator, {}).items():
            yield _line(client, CHECKS["forms"], operator, form, facts, examples)


def _line(
    client: Any, check: Check, operator: str, form: str, row: RowInfo, examples: int
) -> Line:
    wanted = [dtype for dtype in FLOATS if dtype in row.dtypes]
    dtypes = check.dtypes_of(operator + form, wanted) if form else tuple(wanted)
    line, kind = Line(operator, form, row.native, (), dtypes), OPERATORS[operator]
    dtype = next((d for d in (DTYPE, *dtypes) if d in dtypes), "")
    if not dtype or supported(kind, client.about, dtype):
        return line
    recorded = Recorded(check)
    tally = Tally(client.name, check.name, operator, dtype, client.about.version, form)
    exploration = Exploration(
        client=client,
        check=replace(check, run=recorded.run),
        operator=kind,
        dtype=dtype,
        tally=tally,
        examples=examples,
        covered=lambda case: client.known.covers(case, check.name, *check.parts),
    )
    assessment = Assessment(tally)
    exploration.assess(seed_of_cell(check, operator, dtype, form=form), assessment)
    return replace(
        line,
        called=tuple(recorded.names),
        telling=tally.telling,
        judged=tally.right + tally.void,
        faults=len(assessment.faults),
    )


def named(title: str) -> set[str]:
    """The functions that the name of a form names.

    >>> sorted(named("torch.nn.Conv1d, 2d, 3d in channels_last"))
    ['torch.nn.Conv1d', 'torch.nn.Conv2d', 'torch.nn.Conv3d']
    """
    of_each = RANKS.search(title)
    if of_each is None:
        return set(WORD.findall(title))
    name, first, d, _ = of_each.groups()
    return {f"{name}{n}{d}" for n in range(int(first), 4)}


def family(name: str) -> str:
    """What a function is called, however it is written: `F.leaky_relu_`, `nn.LeakyReLU`."""
    last = RANK.sub("", name.rpartition(".")[2].strip("_"))
    return last.replace("_", "").lower()


def uncalled(
    offered: Sequence[tuple[str, ...]], lines: Sequence[Line]
) -> dict[str, tuple[str, ...]]:
    """Functions that are an operator's own by their names, and that no row or form calls.

    By operator; those of a family of which some function is called, or that is named like the
    operator.
    """
    called = {name for line in lines for name in (*line.called, *named(line.form))}
    known = {name for names in offered for name in names}
    families: dict[str, dict[str, None]] = {}
    for line in lines:
        whole = line.called if line.native and len(line.called) == 1 else ()
        functions = (name for name in (*whole, *sorted(named(line.form))) if name in known)
        for name in (line.operator, *functions):
            families.setdefault(family(name), {})[line.operator] = None
    left: dict[str, list[str]] = {line.operator: [] for line in lines}
    for names in offered:
        operators = families.get(family(names[0]), {})
        if 0 < len(operators) <= SEVERAL and called.isdisjoint(names):
            left[next(iter(operators))].append(names[0])
    return {operator: tuple(names) for operator, names in left.items() if names}
