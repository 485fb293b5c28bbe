"""The decision on one metric of one benchmark, and why.

Requirements: no decision without its numbers; what cannot be decided is unsure, with the reason
and with what could have been seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, expm1, inf, isinf
from statistics import median

from d5test.compare.noise import Shift, logarithms, shifts
from d5test.compare.numbers import Unreadable, quoted
from d5test.metric import RIGHT, Metric

ACCEPTED = "accepted"
"""Worse, and known: see `d5test.gate.accepted`."""
VERDICTS = ("worse", ACCEPTED, "unsure", "better", "same")
"""Worst first."""
EXACT = "exact"
"""The reason of a decision that needs no statistics."""


@dataclass(frozen=True)
class Values:
    """A metric of one benchmark in both versions: the values of each run, none where it has none.

    `was`: the name that the benchmark had in the old version.
    """

    benchmark: str
    was: str
    metric: Metric
    old: Sequence[Sequence[float]]
    new: Sequence[Sequence[float]]

    @property
    def before(self) -> list[float]:
        """The old version's values, of all runs."""
        return [value for run in self.old for value in run]

    @property
    def after(self) -> list[float]:
        """The new version's."""
        return [value for run in self.new for value in run]


@dataclass(frozen=True)
class Decision:
    """A verdict on `values`.

    change      of the new median, relative to the old one: 0.1 is 10% more; None if that was 0
    limit       the relative change for the worse beyond which it is called worse
    detectable  the least that would have been found with a probability of 95%
    """

    values: Values
    verdict: str
    reason: str
    change: float | None = None
    limit: float | None = field(default=None, kw_only=True)
    detectable: float | None = field(default=None, kw_only=True)

    @property
    def harm(self) -> float:
        """How much worse: what the worst-first order is by."""
        if self.change is None:
            return inf if self.verdict == "worse" else 0.0
        return self.change if self.values.metric.better == "lower" else -self.change


def worst_first(decisions: Iterable[Decision]) -> list[Decision]:
    """By verdict; of one verdict what is wrong comes before all that is only slow or large."""
    return sorted(
        decisions,
        key=lambda d: (VERDICTS.index(d.verdict), d.values.metric != RIGHT, -d.harm),
    )


def exact(values: Values) -> Decision:
    """A metric that repeats to the digit; if it does not, its own range is what it must leave."""
    sign = 1 if values.metric.better == "lower" else -1
    old, new = ([sign * v for v in side] for side in (values.before, values.after))
    tolerance, spread = values.metric.tolerance, max(old) - min(old)
    repeats = spread <= tolerance
    margin = tolerance if repeats else spread
    change = _relative(median(values.before), median(values.after))
    if (max(new) if repeats else min(new)) > max(old) + margin:
        return Decision(values, "worse", EXACT, change)
    if max(new) < min(old) - margin:
        return Decision(values, "better", EXACT, change)
    if max(new) > max(old) + tolerance:
        return Decision(values, "unsure", "differs between runs of the old version", change)
    return Decision(values, "same", EXACT, change)


def noisy(rows: Sequence[Values], effect: float) -> list[Decision]:
    """One metric of many benchmarks, judged together: they tell the noise of each other's runs."""
    if not rows:
        return []
    higher = rows[0].metric.better == "higher"
    old = logarithms([row.old for row in rows], higher=higher)
    new = logarithms([row.new for row in rows], higher=higher)
    try:
        every = shifts(old, new, effect)
    except FloatingPointError as error:
        raise Unreadable(f"{quoted(rows[0].metric.name)} of the benchmarks: {error}") from None
    return [_noisy(row, shift, effect) for row, shift in zip(rows, every, strict=True)]


def _noisy(values: Values, shift: Shift, effect: float) -> Decision:
    lower = values.metric.better == "lower"
    change = _grown(shift.size if lower else -shift.size)
    if isinf(shift.limit):
        return Decision(
            values, "unsure", "no noise floor is known: it takes two runs of each version", change
        )
    limit, detectable = (
        _grown(x) if lower else 1 - exp(-x) for x in (shift.limit, shift.detectable)
    )
    if abs(shift.size) > shift.limit:
        verdict = "worse" if shift.size > 0 else "better"
        reason = f"beyond the noise, which ends at {limit:.1%}"
    elif _grown(shift.detectable) <= effect:
        verdict, reason = "same", f"{detectable:.1%} would have been found"
    else:
        verdict, reason = "unsure", f"nothing below {detectable:.1%} would surely be found"
    return Decision(values, verdict, reason, change, limit=limit, detectable=detectable)


def _grown(x: float) -> float:
    """The relative change that a logarithm is; infinite where no float holds it."""
    try:
        return expm1(x)
    except OverflowError:
        return inf


def _relative(before: float, after: float) -> float | None:
    if before == after:
        return 0.0
    return after / before - 1 if before else None
