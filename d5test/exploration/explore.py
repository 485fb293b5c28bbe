"""Hypothesis around one check on one cell (operator x dtype) of one backend.

Requirements: only a fault raises, in a class of its own for each kind, so that Hypothesis keeps
the kinds apart and shrinks each; everything else is counted. The same command line draws the same
cases on every machine with the same Hypothesis (`d5test.exploration.draws`). Drawing goes on, up
to `MOST` times the examples asked for, until enough telling cases were judged, and longer where
the backend does few of them. Shrinking ends in time.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from operator import attrgetter
from typing import Any

from hypothesis import given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from d5test.backends.base import Unsupported
from d5test.case import Case, Operator
from d5test.client import history
from d5test.client.client import BackendClient
from d5test.client.messages import TO_A_ROW, BackendInfo, RowInfo
from d5test.exploration.bisecting import bisected
from d5test.exploration.cases import cases_of, evenly
from d5test.exploration.draws import PROFILE, reproducible_draws
from d5test.exploration.ours import is_known_of_ours
from d5test.exploration.shortage import refusal, refused, shortage
from d5test.numerics.bounds import double
from d5test.numerics.judgement import Judgement
from d5test.outcome.assessment import Assessment
from d5test.outcome.fault import Fault
from d5test.outcome.roundings import Roundings
from d5test.outcome.tally import Inapplicable, LeftToOthers, Tally
from d5test.problems.real import small_problems
from d5test.strategies.pairs import Pairs
from d5test.strategies.sizes import LARGEST, MIXED, SMALL_SHARE, Deal, Seed
from d5test.strategies.upstream import Upstreams

MOST = 3
LEAST = 12
"""Cases that may be drawn until enough are telling, however few are wanted."""
AGAIN = 4
"""How many times cases are drawn where too few of them are telling."""
AIM = 15
"""Telling cases that are drawn for, so that `NEEDED` are left when some are known failures."""
COMPILED = 2
"""Sets of data for each drawn shape where a shape is compiled: 20 to 600 ms against 5 of a set.

With one, the forward cells of Relu, Softmax and Conv on jax take 1.4 to 1.6 times the CPU time.
"""
MUCH = 2.0
"""Times as many bars as a reduced fault is off by: what is said of a case before it."""
SHRINKING = 20.0
"""Seconds from the first fault of a cell until the smallest so far are reported; none from a hang,
of which each try costs seconds."""
BISECTING = 10.0
"""Seconds that are left for its sides if reducing was cut short by that."""


class Found(Exception):
    """A fault, on its way through Hypothesis. Each kind has a subclass."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.kind)
        self.fault = fault


class Undrawable(Exception):
    """No case of this operator can be drawn."""


class Enough(BaseException):
    """Ends the drawing; no `Exception`, which Hypothesis would shrink."""


@dataclass
class Exploration:
    """One check on one cell.

    `covered` says whether a case is a known failure. `until` is the time (of `time.monotonic`)
    at which to stop, finished or not. What is drawn is judged on `data_sets` sets of data, each a
    case. `sizes` is `mixed`, or `small`; of cases that are fixed `most` are judged. Afterwards
    `steady` says whether the faults were there again when their cases were repeated, and `left` is
    the first case on which a plain call was wrong. `drawn` has the first fault of each kind, as it
    was before it was reduced.
    """

    client: Any
    check: Any
    operator: type[Operator]
    dtype: str
    tally: Tally
    examples: int
    covered: Callable[[Case], bool]
    until: float = float("inf")
    data_sets: int = 1
    sizes: str = MIXED
    most: int | None = None
    smallest: dict[str, Fault] = field(default_factory=dict)
    drawn: dict[str, Fault] = field(default_factory=dict)
    furthest: dict[str, Judgement] = field(default_factory=dict)
    kinds: dict[str, type[Found]] = field(default_factory=dict)
    shrink_until: float = float("inf")
    steady: bool = True
    left: LeftToOthers | None = None
    broken: Exception | None = None
    roundings: Roundings = field(default_factory=Roundings)

    def assess(self, seed: Seed, assessment: Assessment) -> None:
        """The faults of what is drawn with this seed, or why too little was judged."""
        try:
            assessment.faults += self.faults(seed)
        except Undrawable as error:
            assessment.missing = str(error)
        else:
            assessment.steady = self.steady
            missing = shortage(self.tally, self.check, self.examples)
            if self.refuses:
                missing = refusal(self.tally)
            assessment.missing = missing

    def faults(self, seed: Seed) -> list[Fault]:
        """The smallest fault of each kind in what is drawn with this seed; fills the tally.

        Of cases that are fixed and not drawn, the worst of each kind. Where no case has one, the
        fault that all of them show together, if there is one. Raises `Undrawable` where
        there is nothing to draw, and whatever d5test itself gets wrong.
        """
        if self.check.every is not None:
            return self.worst(evenly(self.check.every(self.operator, self.dtype), self.most))
        try:
            cases = self._cases()
        except LookupError as error:
            raise Undrawable(str(error)) from None
        try:
            sized = self.check.sized and self.sizes == MIXED
            faults = self._of_kinds(seed) if sized else []
            for further in range(AGAIN):
                if faults or (further and not self.starved):
                    break
                faults = self._drawn(cases, seed.number + further)
        except Enough:
            if self.broken is not None and not self.smallest:
                raise self.broken from None
            faults = list(self.smallest.values())
        except Unsatisfiable as error:
            raise Undrawable(self._undrawable(error)) from None
        except Flaky:
            if not self.smallest:
                raise
            self.steady = False
            faults = list(self.smallest.values())
        for fault in faults:
            self._say_how_far(fault)
            fault.drawn = self.drawn.get(fault.kind)
        if not faults and self.check.whole is not None:
            together = self.check.whole(self.check.name, self.client, self.roundings)
            faults = [] if together is None else [together]
        return sorted(faults, key=lambda fault: fault.kind)

    def _undrawable(self, error: Unsatisfiable) -> str:
        """Why Hypothesis found no case, in the words of whoever wrote the conditions."""
        name, form, row = self.tally.operator, self.tally.form, self.row
        if row is not None and row.where:
            whose = f"the form {form}" if form else "the row"
            return f"no drawn case of {name} meets where={dict(row.where)} of {whose}"
        return f"{name}: {error}"

    def left_fault(self, checks: Mapping[str, Any]) -> Fault | None:
        """That of the first case which was left to another of the checks, as that one has it."""
        if self.left is None:
            return None
        try:
            checks[self.left.check].run(self.client, self.left.case)
        except Fault as fault:
            return fault
        except (Inapplicable, Unsupported):
            pass
        return None

    def first(self, cases: Iterable[Case]) -> list[Fault]:
        """The fault of the first case that has one, as it is; fills the tally.

        For cases of a table, which do not shrink: ranks of MPI agree on each of them.
        """
        try:
            for case in cases:
                self.one(case)
        except Found as found:
            return [found.fault]
        except Enough:
            if self.broken is not None:
                raise self.broken from None
        return []

    def worst(self, cases: Iterable[Case]) -> list[Fault]:
        """The worst fault of each kind, of all cases; fills the tally.

        Known failures are judged too, since what is measured of them belongs to the whole;
        whatever comes of it, they are counted as known.
        """
        worst: dict[str, Fault] = {}
        for case in cases:
            if time.monotonic() > self.until:
                self.tally.left_out = "the budget was spent"
                break
            known = self.covered(case)
            try:
                judgement = self.check.run(self.client, case)
            except (Inapplicable, Unsupported) as why:
                self.tally.count_unjudged(why)
                continue
            except Fault as fault:
                judgement = fault.judgement
                known = known or self._known_of_ours(fault)
                if not known and _badness(fault) > _badness(worst.get(fault.kind)):
                    worst[fault.kind] = fault
            else:
                if not known:
                    self.tally.count_right(judgement, case)
            self.tally.known += known
            self.tally.count_accuracy(judgement, case.op)
        return sorted(worst.values(), key=lambda fault: fault.kind)

    @property
    def row(self) -> RowInfo | None:
        """That of the operator, or of the form that is asked; ranks and rules have none."""
        about, name = getattr(self.client, "about", None), self.tally.operator
        if not isinstance(about, BackendInfo):
            return None
        return about.forms[name][self.tally.form] if self.tally.form else about.rows.get(name)

    def _cases(self, **sizes: Any) -> SearchStrategy[Case]:
        """The strategy of the check's cases that the row, or the form, can be asked."""
        return cases_of(self.check, self.operator, self.dtype, self.row, self.tally.form, **sizes)

    def _problems(self) -> tuple[Case, ...]:
        """The real problems, scaled down, that the check may be asked."""
        row = self.row
        return small_problems(self.operator, row.attributes if row else {})

    def _of_kinds(self, seed: Seed) -> list[Fault]:
        """The faults of small cases and of those of other kinds, reduced and then bisected."""
        small = max(1, round(SMALL_SHARE * self.examples / self.data_sets))
        deal = Deal(seed, small, self.check.largest or LARGEST, self._problems())
        cases = self._cases(sizes=lambda key: deal.sizes(key, fresh=not self.smallest))
        try:
            faults = self._drawn(cases, seed.number, deal)
        except Enough:  # on large tensors of a slow backend reducing comes to no end
            if self.broken is not None or not self.smallest:
                raise
            faults = list(self.smallest.values())
            self.shrink_until = min(self.until, time.monotonic() + BISECTING)
        return [
            fault if fault.kind == "hang" else bisected(fault, self._again, self.shrink_until)
            for fault in faults
        ]

    def _drawn(
        self, cases: SearchStrategy[Case], number: int, deal: Deal | None = None
    ) -> list[Fault]:
        """The faults as Hypothesis reports them: alone, or in a group.

        A case that does not show the sizes that were dealt is passed over; where attributes
        are dealt `pairwise` also one that brings no new pair, while there may be a better one.
        """
        pairs = Pairs() if deal is not None and self.check.pairwise else None

        upstreams = Upstreams(number, self.dtype)

        def draw(case: Case) -> None:
            if pairs is not None and not self.smallest and pairs.passes(case):
                return
            if deal is not None and not self.smallest and not deal.shown(case.shapes):
                return
            if self.check.upstream:
                case = upstreams.given(case, fresh=not self.smallest)
            for further in range(self.data_sets if case.random else 1):
                self.one(replace(case, seed=case.seed + further))

        draw = given(case=cases)(draw)
        most = max(MOST * self.examples, LEAST) * (1 if pairs is None else 2)
        draw = settings(PROFILE, max_examples=most)(draw)
        try:
            with reproducible_draws():
                seeded(number)(draw)()
        except Found as single:
            return [single.fault]
        except Flaky:
            raise
        except BaseExceptionGroup as group:
            _, others = group.split((Found, Enough))
            if others is not None:
                raise others from None
            if group.subgroup(Enough) is not None:  # while one of several kinds was reduced
                raise Enough from None
            return list(_leaves(group))
        return []

    def _again(self, case: Case | None, kind: str) -> Fault | None:
        """The fault of this kind that a case has; `None` too where there is no such case."""
        if case is None or self.covered(case) or not case.op.fits(case.inputs):
            return None
        try:
            case.op(*double(case.arrays()))
        except Exception:  # noqa: BLE001 - shapes that do not fit raise whatever the operator does
            return None
        try:
            self.check.run(self.client, case)
        except Fault as fault:
            return fault if fault.kind == kind and not self._known_of_ours(fault) else None
        except (Inapplicable, Unsupported):
            pass
        return None

    def one(self, case: Case) -> None:
        """Judge one case: count it, or raise its fault."""
        self.end_in_time()
        if self.covered(case):
            self.outcomes.known += 1
            return
        if not self.smallest and isinstance(self.client, BackendClient):
            self.tally.renewed += self.client.contain()
        fault = None
        try:
            judgement = self.check.run(self.client, case)
        except (Inapplicable, Unsupported) as why:
            self.outcomes.count_unjudged(why)
            if isinstance(why, LeftToOthers):
                self.left = self.left or why
        except Fault as raised:
            if self._known_of_ours(raised):
                self.outcomes.known += 1
            else:
                fault = raised
        except Exception as error:  # noqa: BLE001 - raised again, when Hypothesis has let go of it
            error.add_note(f"while d5test itself worked on {case!r}")
            self.broken = error
        else:
            self.outcomes.count_right(judgement, case)
            if not self.smallest:
                self.roundings.add(judgement, case)
                self.end_in_time()
        if self.broken is not None:
            raise Enough
        if fault is not None:
            self._remember(fault)
            # outside of every `except`: Hypothesis tells failures apart by their context too
            if fault.kind not in self.kinds:
                self.kinds[fault.kind] = type(f"Found_{fault.kind}", (Found,), {})
            raise self.kinds[fault.kind](fault)

    def _known_of_ours(self, fault: Fault) -> bool:
        names = self.check.name, *self.check.parts
        return is_known_of_ours(self.client, fault, self.check.run, *names)

    @property
    def outcomes(self) -> Tally:
        """Where outcomes are counted: nowhere while Hypothesis is busy with a fault."""
        return Tally("", "", "", "") if self.smallest else self.tally

    def end_in_time(self) -> None:
        """Raise `Enough` when there is nothing more to learn, or no time for it."""
        if self.smallest:
            if time.monotonic() > min(self.until, self.shrink_until):
                raise Enough
        elif self.tally.drawn >= self.examples and self.sated:
            raise Enough
        elif time.monotonic() > self.until:
            self.tally.left_out = "the budget was spent"
            raise Enough

    @property
    def sated(self) -> bool:
        """Whether enough cases were judged, or nothing is asked of any of many."""
        if self.tally.inapplicable == self.tally.drawn >= LEAST:
            return True
        if self.check.fixed or self.check.kind != "value":
            return self.tally.right > 0
        return self.tally.telling >= min(AIM, self.examples)

    @property
    def starved(self) -> bool:
        """Whether more cases are to be drawn: some were telling, and too few.

        The backend may do few of those that are drawn, or compute in a class with wide bars.
        """
        some = self.tally.telling > 0 or self.refuses
        return some and not self.sated and not self.tally.left_out

    @property
    def refuses(self) -> bool:
        """Whether the row refuses all that was drawn, and says nothing of that beforehand."""
        of_a_row = getattr(self.client, "advice", None) is TO_A_ROW
        return of_a_row and refused(self.tally, self.check, self.row)

    def _say_how_far(self, fault: Fault) -> None:
        """Add to a reduced fault by how much a case before it was wrong, if that is much more."""
        worst, here = self.furthest.get(fault.kind), fault.judgement
        if worst is not None and here is not None and worst.ratio > MUCH * here.ratio:
            fault.details["at worst"] = (
                f"{worst.ratio:.4g} times the bar in another case of this test: "
                f"got {worst.got!r}, want {worst.want!r}"
            )

    def _remember(self, fault: Fault) -> None:
        """Keep the smallest fault of each kind, for when Hypothesis does not get to the end."""
        if not self.smallest:
            shrinking = 0.0 if fault.kind == "hang" else SHRINKING
            self.shrink_until = time.monotonic() + shrinking
        here, worst = fault.judgement, self.furthest.get(fault.kind)
        if here is not None and isfinite(here.ratio):
            self.furthest[fault.kind] = (
                here if worst is None else max(worst, here, key=attrgetter("ratio"))
            )
        self.drawn.setdefault(fault.kind, fault)
        if not fault.before.calls:
            fault.before = history.before(self.client, fault.case)
        before = self.smallest.get(fault.kind)
        if before is None or _size(fault.case) <= _size(before.case):
            self.smallest[fault.kind] = fault


def _badness(fault: Fault | None) -> float:
    """How wrong: -1 for nothing, 0 for what has no number."""
    if fault is None:
        return -1.0
    return fault.judgement.ratio if fault.judgement is not None else 0.0


def _size(case: Case) -> tuple[int, int]:
    return sum(prod(shape or ()) for shape in case.shapes), len(repr(case))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[Fault]:
    for member in group.exceptions:
        if isinstance(member, BaseExceptionGroup):
            yield from _leaves(member)
        elif isinstance(member, Found):
            yield member.fault
