"""What came of the cases drawn for each cell, counted as they come, and the probable
causes of its faults."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from d5test.accuracy import Accuracy, Grade
from d5test.backends.base import Unsupported
from d5test.client.messages import Refused
from d5test.outcome.fault import AT, ENDED, ON_EMPTY, Fault

LEAST_SHARE = 0.5
"""The share of each output and gradient that has to be judged, on the average of its cases."""
OUTCOMES = ("right", "fault", "known", "inapplicable", "unsupported", "void", "untested")


class Inapplicable(Exception):
    """The check says nothing of this case; the text says why.

    Whatever the backend: samples that interact have no batch check.
    """


class LeftToOthers(Inapplicable):
    """The check says nothing of this case: a plain call is wrong, which another check says.

    That one may draw no such case. So at the end of a run an operator that is accused of nothing
    else is accused of this.
    """

    def __init__(self, wrong: str, check: str, case: Any) -> None:
        super().__init__(f"{wrong}: only the {check} check accuses it")
        self.wrong, self.check, self.case = wrong, check, case


@dataclass
class Tally:
    """The outcomes of one check on one cell (operator x dtype) of one backend.

    version             the framework's version
    form                which of the backend's forms was asked; empty: its row
    right .. untested   how many cases, by outcome; `untested` is 1 when the cell was not tested
    refused_by_row      those of the unsupported that no exception of the framework's is behind
    telling             cases that were right, and whose bar rejects all that is obviously wrong
    share               mean share of the elements that were judged, over the cases that were right
    shares              the same of each output and gradient: the sum of its shares, and its cases
    worst, worst_case   the largest ratio of error and bar among the right ones, and its case
    arithmetics         classes of low-precision arithmetic that were met, with counts
    models              error models without which a case would be wrong, with counts
    reasons             why something was inapplicable or unsupported, with counts
    faults              the smallest fault of each kind
    left_to_others      the first case on which a plain call is wrong, which is left to another
                        check to say: what is wrong, that check, and the case; the `text` of the
                        fault that it finds there, and its `reproducer`, if it does
    accuracy            errors in ULPs of each function (an operator with its attributes)
    grades              of each function that has a stable form
    renewed             how often a fresh worker took over from one that had grown too large
    left_out            why the cell was not explored (to the end)
    """

    backend: str
    check: str
    operator: str
    dtype: str
    version: str = ""
    form: str = ""
    right: int = 0
    fault: int = 0
    known: int = 0
    inapplicable: int = 0
    unsupported: int = 0
    refused_by_row: int = 0
    void: int = 0
    untested: int = 0
    telling: int = 0
    share: float = 0.0
    shares: dict[str, list[float]] = field(default_factory=dict)
    worst: float = 0.0
    worst_case: str = ""
    arithmetics: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    faults: list[dict[str, str]] = field(default_factory=list)
    left_to_others: dict[str, str] = field(default_factory=dict)
    accuracy: dict[str, Accuracy] = field(default_factory=dict)
    grades: dict[str, Grade] = field(default_factory=dict)
    renewed: int = 0
    left_out: str = ""

    @property
    def drawn(self) -> int:
        """How many cases were drawn before the first fault."""
        return self.right + self.known + self.inapplicable + self.unsupported + self.void

    def count_right(self, judgement: Any, case: object) -> None:
        """A judgement that is right, or void."""
        if judgement.void:
            self.void += 1
            return
        self.share += (float(judgement.share) - self.share) / (self.right + 1)
        add_shares(self.shares, judgement)
        self.right += 1
        self.telling += bool(judgement.telling)
        ratio = float(judgement.ratio)
        if ratio > self.worst or not self.worst_case:
            self.worst, self.worst_case = ratio, repr(case)
        if judgement.model:
            self.models[judgement.model] = self.models.get(judgement.model, 0) + 1
        if judgement.arithmetic:
            name = str(judgement.arithmetic)
            self.arithmetics[name] = self.arithmetics.get(name, 0) + 1

    def count_accuracy(self, judgement: Any, function: object) -> None:
        """Errors that were measured, whatever was judged of them, and the grade."""
        name = repr(function)
        accuracy, grade = getattr(judgement, "accuracy", None), getattr(judgement, "grade", None)
        if accuracy is not None:
            self.accuracy[name] = self.accuracy.get(name, Accuracy()) + accuracy
        if grade is not None:
            self.grades[name] = self.grades.get(name, Grade()) + grade

    def count_unjudged(self, why: Unsupported | Inapplicable) -> None:
        """A case, or a whole cell, that the backend does not do, or of which nothing is asked."""
        if isinstance(why, Inapplicable):
            self.inapplicable += 1
        else:
            self.unsupported += 1
            self.refused_by_row += not isinstance(why, Refused)
        self.reasons[str(why)] = self.reasons.get(str(why), 0) + 1
        if isinstance(why, LeftToOthers) and not self.left_to_others:
            words = {"wrong": why.wrong, "check": why.check, "case": repr(why.case)}
            self.left_to_others = words

    def count_fault(self, fault: Fault, reproducer: str = "") -> None:
        """One more kind of fault, and the path of its reproducer."""
        self.fault += 1
        self.faults.append(
            {
                "kind": fault.kind,
                "cause": fault.cause,
                "said": " ".join(fault.said.split()),
                "at": fault.details.get(AT, ""),
                "case": repr(fault.case),
                "text": fault.headline,
                "reproducer": reproducer,
            }
        )


def add_shares(shares: dict[str, list[float]], judgement: Any) -> None:
    """Add those of a judgement to the sums of what was judged of each output and gradient."""
    for name, share in judgement.shares.items():
        total, cases = shares.get(name, (0.0, 0))
        shares[name] = [total + share, cases + 1]


def rarely_judged(
    shares: Mapping[str, Sequence[float]], least: int = 1, share: float = LEAST_SHARE
) -> str:
    """The outputs and gradients of which less than a share was judged, in words; empty: none.

    Of those only that were there in `least` cases: few say nothing of an optional input.
    """
    means = {name: total / n for name, (total, n) in shares.items() if n >= least}
    return ", ".join(f"{mean:.0%} of {name}" for name, mean in means.items() if mean < share)


@dataclass(frozen=True)
class Cause:
    """Faults that probably have one cause.

    faults  each with the tally that it belongs to; the first has the shortest reproducer
    """

    backend: str
    faults: tuple[tuple[Tally, dict[str, Any]], ...]

    @property
    def headline(self) -> str:
        """That of the first fault, unless it is one of many operators on empty tensors."""
        _, fault = self.faults[0]
        operators = {tally.operator for tally, _ in self.faults}
        if not self.on_empty or len(operators) == 1:
            return str(fault["text"])
        how, what = fault["said"].removeprefix(ENDED), "the process died"
        subject, _, place = fault["text"].partition(f": {what}")
        example = subject.removesuffix(" as its row calls it") + place
        return f"{len(operators)} operators: {what} ({how}) on empty tensors, as in {example}"

    @property
    def on_empty(self) -> bool:
        """Whether it is how the process dies of empty tensors, whichever the operator."""
        return str(self.faults[0][1]["cause"]).startswith(ON_EMPTY)

    @property
    def difference(self) -> str:
        """What tells it from another cause with this headline: its character, its dtypes."""
        tally, fault = self.faults[0]
        character = fault["cause"].removeprefix(f"{fault['kind']}: {tally.operator}").strip()
        character = fault["said"] or character
        dtypes = shortened(sorted({tally.dtype for tally, _ in self.faults} - {""}))
        return " in ".join(filter(None, (character, dtypes)))

    @property
    def raised(self) -> bool:
        """Whether the framework refused a case, and returned nothing wrong."""
        return bool(self.faults[0][1]["kind"] == "exception")

    @property
    def died(self) -> bool:
        """Whether the framework's process died."""
        return any(fault["kind"] == "crash" for _, fault in self.faults)

    @property
    def reproducer(self) -> str:
        """The path of the shortest reproducer; empty if there is none."""
        return str(self.faults[0][1]["reproducer"])

    @property
    def cells(self) -> str:
        """Where it shows: operators, checks and dtypes. All operators where they are the news."""
        parts = {
            name: sorted({getattr(tally, name) for tally, _ in self.faults} - {""})
            for name in ("operator", "check", "dtype")
        }
        lists = {name: shortened(part) for name, part in parts.items()}
        if self.on_empty:
            lists["operator"] = ", ".join(parts["operator"])
        return "; ".join(filter(None, lists.values()))


def causes(tallies: Iterable[Tally]) -> list[Cause]:
    """The causes of all faults: deaths, then those that show most often, of these exceptions last.

    One missing kernel, one wrong row or one crash shows in many checks and dtypes. Faults that
    raised the same words, or are of the same kind on the same operator or the same engine, count
    as one cause; so do deaths by the same signal on empty tensors, and of the same operator.
    """
    groups: dict[tuple[str, str], list[tuple[Tally, dict[str, Any]]]] = {}
    for tally in tallies:
        for fault in tally.faults:
            groups.setdefault((tally.backend, fault["cause"]), []).append((tally, fault))

    def size(fault: tuple[Tally, dict[str, Any]]) -> float:
        path = Path(fault[1]["reproducer"])
        return path.stat().st_size if path.is_file() else float("inf")

    grouped = [
        Cause(backend, tuple(sorted(faults, key=size))) for (backend, _), faults in groups.items()
    ]
    return sorted(grouped, key=lambda cause: (not cause.died, -len(cause.faults), cause.raised))


ELSEWHERE = frozenset(
    {"special", "sign of zero", "accepted", "integers", "integer_forms", "compiled_integers"}
)
"""Kinds and checks of faults that say nothing of what a plain call makes of usual numbers."""


def unaccused(tallies: Sequence[Tally]) -> list[Tally]:
    """Those that left a wrong case to another check, where no test says that results are wrong.

    One of each operator of each backend.
    """
    accused = {
        (t.backend, t.operator)
        for t in tallies
        if any(ELSEWHERE.isdisjoint((fault["kind"], t.check)) for fault in t.faults)
    }
    found: dict[tuple[str, str], Tally] = {}
    for tally in tallies:
        if tally.left_to_others and (tally.backend, tally.operator) not in accused:
            found.setdefault((tally.backend, tally.operator), tally)
    return list(found.values())


def shortened(names: list[str], most: int = 6) -> str:
    """A list in a line, cut where it is long."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
