"""What a check is.

`Check.reason` returns an exception that says why a backend is not asked, or `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from d5test.backends.base import Unsupported
from d5test.case import Case, Operator
from d5test.client.messages import BackendInfo
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.roundings import Roundings
from d5test.outcome.tally import Inapplicable

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Why = Unsupported | Inapplicable | None
Reason = Callable[[type[Operator], BackendInfo, str], Why]
"""Of an operator, what is known of a backend, and a dtype."""
USUAL = 25
"""Examples in an ordinary run: the default of `--examples`."""
THOROUGH = 100
"""Examples in a run that looks for what a short one leaves out."""


def listed(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """Why a backend cannot be asked for an operator in a dtype; nothing if it can."""
    row = about.rows.get(operator.__name__)
    if row is None:
        return Unsupported(f"{about.name} has no row for {operator.__name__}")
    if dtype not in row.dtypes:
        return Unsupported(f"{operator.__name__} is not declared for {dtype} on {about.name}")
    return None


def without_reference(operator: type[Operator]) -> Why:
    """What is said of an operator whose values nobody can judge; nothing if it has a reference."""
    if operator.random:
        return Inapplicable(f"{operator.__name__} draws by chance: its distribution is judged")
    if operator.forward is not Operator.forward:
        return None
    return Inapplicable(f"{operator.__name__} has no reference: its values were not judged")


def repeatable(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `listed`, and the same call is to give the same result."""
    drawn = without_reference(operator) if operator.random else None
    return listed(operator, about, dtype) or drawn


def supported(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `listed`, and there is a reference to judge values by."""
    return listed(operator, about, dtype) or without_reference(operator)


def with_gradient(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and both sides have a gradient."""
    row = about.rows.get(operator.__name__)
    if row is not None and row.gradient:
        return Unsupported(row.gradient)
    if operator.backward is Operator.backward:
        return without_reference(operator) or Inapplicable(f"{operator.__name__} has no gradient")
    return supported(operator, about, dtype)


def of_numbers(reason: Reason) -> Reason:
    """As `reason`, and the operator is one of real numbers: not of the dtypes that they have."""

    def why(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
        if operator.typed and not operator.random:
            return Inapplicable(f"{operator.__name__} rounds, and its dtypes are judged with it")
        return reason(operator, about, dtype)

    return why


def drawn(operator: Any, dtype: str, **choices: Any) -> SearchStrategy[Case]:
    """Cases of an operator; `choices` as for `d5test.strategies.cases`."""
    from d5test.strategies import cases  # Hypothesis is slow to import, and not yet needed

    return cases(operator, dtype, **choices)


@dataclass(frozen=True)
class Check:
    """A property that must hold for a backend and a case.

    run     returns a judgement or raises a fault (or Unsupported)
    dtypes  those in which it is asked
    family  the operators of which it is asked: a class of them, or several
    kind    `value`: every cell needs telling cases. `structural`: shapes, bytes, exceptions
    modes   the backend's modes that it is meant for
    cases   the strategy of its cases
    reason  why a cell is not asked, or empty
    draws   at most so many cases of 25 that the user wants (compilations are slow), and of more
            as many more; `None`: as many as the user wants
    quick   as `draws`, of a backend that compiles quickly; 0: the same
    resizable
            its own `cases` take a kind of sizes, too
    share   of the examples that the user wants
    later   of these, and of `draws`, the share in each dtype but the first
    upstream
            whether its cases have upstream gradients of all regimes, not only normal ones
    every   all of its cases, where they are fixed and none is drawn
    largest elements of an input in a case that is not small; 0: all are small; `None`: no limit of
            its own
    forms   whether it is asked of the backends' forms, and not of their rows
    parts   checks whose known failures are its own, too
    pairwise
            whether its cases are to meet each pair of attribute values
    whole   what is asked of all cases of a cell together, once each of them is right; returns a
            fault, or nothing
    sizes   the sizes that are asked for where it is asked, alone; empty: mixed or small ones
    in_turn of forms: further dtypes, of which each form is asked one in a short run
    place   which of the checks it is: each begins at another place with real problems, and sides
    """

    name: str
    run: Callable[[Any, Case], Judgement]
    dtypes: tuple[str, ...] = ("float32",)
    kind: str = "structural"
    modes: tuple[str, ...] = ("eager",)
    cases: Callable[[Any, str], SearchStrategy[Case]] = drawn
    reason: Reason = supported
    draws: int | None = None
    quick: int = 0
    family: type[Operator] | tuple[type[Operator], ...] = Operator
    every: Callable[[type[Operator], str], Sequence[Case]] | None = None
    largest: int | None = None
    forms: bool = False
    parts: tuple[str, ...] = ()
    resizable: bool = False
    share: float = 1.0
    pairwise: bool = False
    whole: Callable[[str, Any, Roundings], Fault | None] | None = None
    later: float = 1.0
    upstream: bool = False
    sizes: str = ""
    in_turn: tuple[str, ...] = ()
    place: int = 0

    def asks_in(self, dtype: str) -> bool:
        """Whether it may be asked in a dtype."""
        return dtype in (*self.dtypes, *self.in_turn)

    def dtypes_of(self, name: str, wanted: Sequence[str], examples: int = 0) -> tuple[str, ...]:
        """The dtypes, of those that are wanted, in which the form of this name is asked.

        All of them where `THOROUGH` examples are.
        """
        turns = [dtype for dtype in self.in_turn if dtype in wanted]
        if turns and examples < THOROUGH:
            turns = [turns[crc32(name.encode()) % len(turns)]]
        return tuple(d for d in (*self.dtypes, *turns) if d in wanted)

    @property
    def sized(self) -> bool:
        """Whether its cases may be of any kind of sizes."""
        return (self.cases is drawn or self.resizable) and self.largest != 0

    def examples(self, wanted: int, dtype: str, about: BackendInfo) -> int:
        """How many cases are drawn in a dtype where the user wants so many."""
        draws = self.quick if self.quick and about.compiles_quickly else self.draws
        part = 1.0 if dtype == self.dtypes[0] else self.later
        few = max(1, round(self.share * part * wanted))
        if draws is None:
            return few
        return min(few, max(1, round(part * draws)) * max(1, wanted // USUAL))

    @property
    def fixed(self) -> bool:
        """Whether the number of cases is not the user's choice."""
        return self.draws is not None or self.every is not None
