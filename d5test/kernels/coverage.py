"""What drawn cases enter, and what real problems enter: cell by cell, in workers of their own.

Requirements: of drawn cases only those count that are telling, that is which would have shown a
wrong result; they are the ones that the suite draws on the same command line. A case counts
whatever its form: checks that judge values are asked, and those of memory layouts. A crash or a
hang ends neither the cell nor the run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from d5test.backends.base import Unsupported
from d5test.case import Case, Operator, is_float
from d5test.checks import CHECKS
from d5test.checks.check import Check, supported
from d5test.client.client import BackendClient
from d5test.client.messages import FAILURES, Feed
from d5test.exploration.draws import seed_of_cell
from d5test.exploration.explore import COMPILED, Exploration, Undrawable
from d5test.kernels.probe import Function, Probe
from d5test.kernels.symbols import counts
from d5test.known.reading import known_of
from d5test.numerics.judgement import Judgement
from d5test.outcome.tally import Tally

BESIDE = ("layout", "layout_gradient", "compiled")
"""Checks that judge values, besides those of which every cell needs telling cases."""
LAST = "channels_last"
"""The layout in which networks of images are run, besides the usual one."""


@dataclass
class Cell:
    """An operator in a dtype.

    judged    drawn cases that were judged
    telling   those of them that are telling
    problems  real ones that ran
    broken    requests that crashed, hung or raised
    why       why it was not looked at; empty if it was
    drawn     what telling cases enter
    real      what real problems enter, each with the call that was the first to do so
    """

    operator: str
    dtype: str
    judged: int = 0
    telling: int = 0
    problems: int = 0
    broken: int = 0
    why: str = ""
    drawn: set[Function] = field(default_factory=set)
    real: dict[Function, str] = field(default_factory=dict)

    @property
    def only_real(self) -> list[Function]:
        """What no drawn case enters, in the order of the libraries."""
        return sorted(self.real.keys() - self.drawn)

    @property
    def only_drawn(self) -> list[Function]:
        """What no real problem enters."""
        return sorted(self.drawn - self.real.keys())


@dataclass(frozen=True)
class Wish:
    """What is asked for: see the options of `pytest suites/operators`."""

    examples: int
    seed: int
    sizes: str
    problems: Callable[[type[Operator]], Iterable[Case]]


class Recorder:
    """The functions that one cell enters, collected as they come."""

    def __init__(self, probe: Probe, cell: Cell) -> None:
        self._probe, self._cell = probe, cell

    def judging(self, check: Check) -> Check:
        """The check, which notes what its telling cases enter."""

        def run(client: Any, case: Case) -> Judgement:
            self._cell.judged += 1
            telling = False
            try:
                judgement = check.run(client, case)
                telling = judgement.telling
            finally:
                functions = self._entered(kept=telling)
                if telling:
                    self._cell.telling += 1
                    self._cell.drawn.update(functions)
            return judgement

        return replace(check, run=run)

    def run(self, calls: Iterable[tuple[Operator, Feed]]) -> None:
        """Note what calls enter, whatever comes of them."""
        ran = False
        for op, feed in calls:
            try:
                self._probe.client.run(op, [feed])
                ran = True
            except Unsupported:
                self._entered(kept=False)
                continue
            except FAILURES:
                self._cell.broken += 1
            for function in self._entered(kept=True):
                self._cell.real.setdefault(function, described(op, feed))
        self._cell.problems += ran

    def _entered(self, *, kept: bool) -> list[Function]:
        """What was entered since the last time, or nothing, and it is watched again."""
        try:
            places = self._probe.entered()
            if kept:
                return list(filter(counts, self._probe.named(places))) if places else []
            self._probe.forget(places)
        except FAILURES:
            self._cell.broken += 1
        return []


def described(op: Operator, feed: Feed) -> str:
    """A call in words: what decides which kernel runs."""
    shapes = ", ".join("-" if x is None else "x".join(map(str, x.shape)) for x in feed.inputs)
    words = [f"{op!r} of {shapes}"]
    words += [name for name in dict.fromkeys(feed.layouts or ()) if name != "contiguous"]
    return ", ".join([*words, *(["gradient"] if feed.grads is not None else [])])


def covered(client: BackendClient, wish: Wish, cells: Sequence[tuple[type[Operator], str]],
            tell: Callable[[Cell], None]) -> list[Cell]:  # fmt: skip
    """The cells, each told as soon as it is known. Raises `NoMeans`, and `Unsupported`."""
    probe, result = Probe(client), []
    client.known = known_of(client.about, CHECKS)
    for operator, dtype in cells:
        cell = Cell(operator.__name__, dtype)
        if why := supported(operator, client.about, dtype):
            cell.why = str(why)
        else:
            _fill(probe, wish, cell, operator)
        tell(cell)
        result.append(cell)
    return result


def _fill(probe: Probe, wish: Wish, cell: Cell, operator: type[Operator]) -> None:
    """Both halves, the drawn one first: what happens once in a process is no kernel's choice."""
    client, recorder = probe.client, Recorder(probe, cell)
    client.renew()
    probe.arm()
    for check, form in checks_of(client, operator, cell.dtype):
        _explore(client, recorder.judging(check), operator, cell, form, wish)
    probe.entered()
    probe.arm()
    for case in wish.problems(operator):
        recorder.run(feeds_of(client, in_dtype(case, cell.dtype)))


def checks_of(
    client: BackendClient, operator: type[Operator], dtype: str
) -> Iterator[tuple[Check, str]]:
    """The checks that judge values in a cell, each with the form that it asks (empty: the row)."""
    about = client.about
    for check in CHECKS.values():
        judging = check.kind == "value" or check.name in BESIDE
        asked = about.mode in check.modes and dtype in check.dtypes
        if not (judging and asked) or check.reason(operator, about, dtype):
            continue
        named: Mapping[str, Any] = (
            about.forms.get(operator.__name__, {}) if check.forms else {"": 0}
        )
        yield from ((check, form) for form in named if not form or dtype in named[form].dtypes)


def _explore(
    client: BackendClient,
    check: Check,
    operator: type[Operator],
    cell: Cell,
    form: str,
    wish: Wish,
) -> None:
    about = client.about
    name = about.name.partition("@")[0].rpartition("/")[2]
    which = check, cell.operator, cell.dtype, name, wish.seed
    seed = seed_of_cell(*which, form=form, alike=about.compiles_shapes)
    tally = Tally(about.name, check.name, cell.operator, cell.dtype, str(about.version), form)
    exploration = Exploration(
        client=client,
        check=check,
        operator=operator,
        dtype=cell.dtype,
        tally=tally,
        examples=check.examples(wish.examples, cell.dtype, about),
        covered=lambda case: client.known.covers(case, check.name, *check.parts),
        data_sets=COMPILED if about.compiles_shapes and not check.fixed else 1,
        sizes=wish.sizes,
    )
    try:
        exploration.faults(seed)
    except Undrawable as error:
        cell.why = str(error)


def feeds_of(client: BackendClient, case: Case) -> Iterator[tuple[Operator, Feed]]:
    """The calls of a real problem: forward and with gradient, also in the layout of images."""
    about, op = client.about, case.op
    arrays = case.arrays()
    plain = Feed(arrays)
    layouts: list[tuple[str, ...] | None] = [None]
    if LAST in about.layouts and any(len(shape or ()) in (4, 5) for shape in case.shapes):
        layouts.append(
            tuple(LAST if len(s or ()) in (4, 5) else "contiguous" for s in case.shapes)
        )
    yield op, plain
    grads = None
    if not about.rows[op.name].gradient and op.differentiable:
        try:
            (result,) = client.run(op, [plain])
        except (Unsupported, *FAILURES):
            return
        outputs = result.outputs
        grads = case.upstream(outputs)
        grads = tuple(dy if is_float(y.dtype.name) else None
                      for y, dy in zip(outputs, grads, strict=True))  # fmt: skip
    for layout in layouts:
        if layout is not None:
            yield op, replace(plain, layouts=layout)
        if grads is not None:
            yield op, replace(plain, layouts=layout, grads=grads)


def in_dtype(case: Case, dtype: str) -> Case:
    """The case with its floating-point inputs in another dtype."""
    inputs = tuple(
        replace(t, dtype=dtype) if t is not None and is_float(t.dtype) else t for t in case.inputs
    )
    return replace(case, inputs=inputs)
