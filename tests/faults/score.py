"""Which mutants the checks find.

A mutant is a backend: NumPy with one row exchanged. On a case on which it gives the same bits as
the reference there is nothing to find; a mutant that does so on all cases is equivalent. On the
others the checks judge it, until one finds it. A mutant that raises on some case is judged on the
rest; one that raises or does not end on all of them is no mutant.
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np

from d5test.backends.base import Row, Unsupported
from d5test.backends.numpy import Numpy, Reference
from d5test.case import Case, Operator
from d5test.checks import CHECKS, Fault
from d5test.client.client import InProcessClient
from d5test.client.messages import Feed, Raised
from d5test.outcome.tally import Inapplicable
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases
from d5test.worker.service import Service
from tests.faults.mutants import Mutant, drawn, mutants

CHECKED = {
    "float64": ("forward", "gradient", "numerical_gradient"),
    "float32": ("forward", "gradient"),
}
COUNTS = {"float64": 40, "float32": 25}
"""Cases drawn of each operator: as many as a user draws (25) in each dtype, in all."""
VALUED = tuple(name for name, operator in OPERATORS.items() if not operator.random)
"""Operators of which mutants are made. A sample is right or wrong as a whole, and most changes of
an element leave it right: see tests/numerics/test_chance.py."""
SECONDS = 5
"""What a mutant may take for one case."""


class Local(InProcessClient):
    """A backend in this process that is given, not named."""

    def __init__(self, name: str, backend: Any) -> None:
        self.name = name
        self._requests = Service(lambda: backend)

    def _answer(self, request: tuple[Any, ...], *meanwhile: Any) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            return super()._answer(request, *meanwhile)


def with_row(operator: type[Operator], make: Any) -> Local:
    """NumPy with one row: `make` in place of the operator's class."""
    rows = {
        operator.__name__: Row(Reference(make), gradient=Numpy.rows[operator.__name__].gradient)
    }
    rows["Mul"] = rows.get("Mul") or Numpy.rows["Mul"]
    backend = type("Mutated", (Numpy,), {"rows": rows})
    return Local("mutant", backend())


@dataclass(frozen=True)
class Example:
    """A case, what is fed, and what the reference makes of it in the case's own dtype."""

    case: Case
    feed: Feed
    results: tuple[bytes, ...] = ()


@dataclass
class Subject:
    """An operator with its cases, healthy results included."""

    operator: type[Operator]
    examples: Mapping[str, tuple[Example, ...]] = field(init=False)

    def __post_init__(self) -> None:
        client = with_row(self.operator, self.operator)
        self.examples = {dtype: tuple(self._examples(client, dtype)) for dtype in CHECKED}

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(example.case for examples in self.examples.values() for example in examples)

    def _examples(self, client: Local, dtype: str) -> Iterator[Example]:
        for case in drawn(cases(self.operator, dtype), COUNTS[dtype]):
            with np.errstate(all="ignore"):
                outputs = case.op(*case.arrays())
            grads = case.upstream(outputs) if case.op.differentiable else None
            feed = Feed(case.arrays(), grads, same_as=tuple(t and t.same_as for t in case.inputs))
            example = Example(case, feed)
            yield replace(example, results=results(client, example))


def results(client: Local, example: Example) -> tuple[bytes, ...]:
    """All outputs and gradients, as bytes that can be compared."""
    case = example.case
    try:
        (result,) = client.run(case.op, [example.feed], wanted=case.wanted)
    except Raised as raised:
        if raised.where == "fit":  # the outputs have other shapes
            return (str(raised).encode(),)
        raise
    return tuple(
        b"" if a is None else f"{a.dtype}{a.shape}".encode() + a.tobytes()
        for a in (*result.outputs, *(result.gradients or ()))
    )


@dataclass(frozen=True)
class Outcome:
    """`verdict`: found, survived, equivalent, or dropped. `by`: the check and its dtype.

    Of a survivor, `differing` counts the cases with other bits than the reference's, and `ratio`
    is how near the bar it came.
    """

    mutant: Mutant
    verdict: str
    by: str = ""
    differing: int = 0
    ratio: float = 0.0


def outcome(mutant: Mutant, subject: Subject) -> Outcome:
    """What becomes of one mutant."""
    try:
        client = with_row(subject.operator, mutant.make())
    except Exception:  # noqa: BLE001 - the change does not even make a class
        return Outcome(mutant, "dropped")
    differing, raised, worst = 0, False, 0.0
    for dtype, examples in subject.examples.items():
        for example in examples:
            got = _within_time(lambda example=example: results(client, example))
            if got is None:
                raised = True
            elif got != example.results:
                differing += 1
                by, ratio = _judged(client, dtype, example.case)
                if by:
                    return Outcome(mutant, "found", by)
                worst = max(worst, ratio)
    if differing:
        return Outcome(mutant, "survived", "", differing, worst)
    return Outcome(mutant, "dropped" if raised else "equivalent")


def _judged(client: Local, dtype: str, case: Case) -> tuple[str, float]:
    """The check that finds something, if one does; the worst ratio."""
    worst = 0.0
    for name in CHECKED[dtype]:
        check = CHECKS[name]
        if check.reason(type(case.op), client.about, dtype):
            continue
        try:
            worst = max(worst, check.run(client, case).ratio)
        except Fault:
            return f"{name} in {dtype}", worst
        except (Inapplicable, Unsupported):
            continue
    return "", worst


def _within_time(run: Callable[[], Any]) -> Any:
    """What `run` returns; `None` if it raises or takes too long."""
    try:
        with limit(SECONDS), np.errstate(all="ignore"):
            return run()
    except (Raised, Unsupported, TimeoutError):
        return None


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError after so many seconds (main thread only)."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcomes(
    name: str, chosen: Callable[[Sequence[Mutant]], Sequence[Mutant]] = list
) -> list[Outcome]:
    """Of every mutant of an operator, or of those that `chosen` chooses."""
    subject = Subject(OPERATORS[name])
    every = list(mutants(subject.operator, subject.cases))
    return [outcome(mutant, subject) for mutant in chosen(every)]


def outcomes_alone(name: str) -> list[Outcome]:
    """As `outcomes`, without the mutants' code: what a process can send to another."""
    return [replace(one, mutant=replace(one.mutant, make=Mutant.gone)) for one in outcomes(name)]
