"""Two versions compared: matched, decided metric by metric, and summed up in a verdict.

Requirements: everything that the outputs and the report say is in here, and is computed from the
runs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from d5test.compare.collection import uncollected
from d5test.compare.decision import VERDICTS, Decision, Values, exact, noisy, worst_first
from d5test.compare.entry import named
from d5test.compare.environment import differing
from d5test.compare.matching import Matching, match
from d5test.compare.numbers import SPREAD, Unreadable, told
from d5test.compare.reading import Run
from d5test.metric import ARITHMETIC, RATIO, TIME, Metric, Sample

EFFECT = 0.05
"""The slowdown that is to be found; a change below half of it is called none."""
Decider = Callable[[Sequence[Values], float], list[Decision]]
"""Decides on one metric of many benchmarks, to find changes of a size."""


@dataclass(frozen=True)
class Comparison:
    """Decisions worst first; the facts of the environment that differ.

    effect  the slowdown that was to be found
    strict  what is unsure fails
    """

    old: Sequence[Run]
    new: Sequence[Run]
    matching: Matching
    decisions: Sequence[Decision]
    environment: Mapping[str, tuple[str, str]]
    effect: float = EFFECT
    strict: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Decisions by verdict."""
        found = Counter(decision.verdict for decision in self.decisions)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def lost(self) -> list[str]:
        """Operators of which no benchmark is left; one whose results are wrong is still there."""
        left = {e.operator for run in self.new for e in run.entries.values()}
        left |= {v.operator for v in self.matching.vanished if v.wrong}
        gone = dict.fromkeys(v.operator for v in self.matching.vanished if v.operator)
        return [operator for operator in gone if operator not in left]

    @property
    def timed(self) -> int:
        """Benchmarks whose times were compared."""
        return sum(d.values.metric == TIME for d in self.decisions)

    @property
    def blind(self) -> bool:
        """Whether no benchmark could have shown the slowdown, or nothing was compared at all."""
        times = [d for d in self.decisions if d.values.metric == TIME]
        return all(d.verdict == "unsure" for d in times or self.decisions)

    @property
    def verdict(self) -> str:
        """`regressed`, or `unsure` if something could not be told, or `passed`."""
        if self.counts["worse"] or self.matching.vanished:
            return "regressed"
        untold = self.counts["unsure"] or self.matching.changed or not self.decisions
        return "unsure" if untold else "passed"


@uncollected()
def compare(
    old: Sequence[Run], new: Sequence[Run], effect: float = EFFECT, decide: Decider = noisy
) -> Comparison:
    """Decide on every metric that both versions have.

    effect  see `noise.shifts`
    decide  on metrics that do not repeat to the digit: of stored runs, or of the gate's session
    """
    matching = match(old, new)
    exacts: list[Decision] = []
    groups: dict[str, list[Values]] = {}
    for before, after in matching.pairs:
        for found in _metrics(old, new, before, after):
            if isinstance(found, Decision):
                exacts.append(found)
            elif found.metric.gate == "noise":
                groups.setdefault(found.metric.name, []).append(found)
            else:
                exacts.append(exact(found))
    decisions = exacts + [d for rows in groups.values() for d in decide(rows, effect)]
    facts = [[run.facts for run in side] for side in (old, new)]
    return Comparison(old, new, matching, worst_first(decisions), differing(*facts), effect)


def _metrics(
    old: Sequence[Run], new: Sequence[Run], before: str, after: str
) -> Iterator[Values | Decision]:
    """Each metric of a benchmark that the old version has, and that is gated."""
    alike = _classes(old, before) == _classes(new, after)
    for name, metric in _known(old, before, new, after).items():
        if name == RATIO.name and not alike:
            continue  # bars of another class; the class itself is compared
        unit = _unit(old, before, new, after) if metric.name == TIME.name else None
        sides = _values(old, before, metric, unit), _values(new, after, metric, unit)
        values = Values(after, before, metric, *sides)
        if metric.gate == "noise":
            for runs, name_there, measured in zip((old, new), (before, after), sides, strict=True):
                _alike(runs, name_there, metric, measured)
        if values.before and values.after:
            yield values
        elif not _recorded(old, before, name):
            continue
        elif not _recorded(new, after, name):
            if name == RATIO.name and _wrong(new, after):
                continue  # an error without end has no ratio: that it is wrong says it all
            verdict = "unsure" if metric.gate == "noise" else "worse"
            yield Decision(values, verdict, "is recorded no longer")
        else:
            yield Decision(values, "unsure", "invalid: the timed outputs were wrong")


def _alike(
    runs: Sequence[Run], benchmark: str, metric: Metric, measured: Sequence[Sequence[float]]
) -> None:
    """Raise `Unreadable` where runs of one version differ by more than any noise does.

    One such value would make every limit so wide that nothing is found to be worse.
    """
    every = [(value, run.path) for run, side in zip(runs, measured, strict=True) for value in side]
    least, most = min(every, default=(1.0, "")), max(every, default=(1.0, ""))
    if most[0] <= SPREAD * least[0]:
        return
    usual = median(value for value, _ in every)
    odd, path = least if usual / least[0] >= most[0] / usual else most
    raise Unreadable(
        f"{path}: benchmark {named(benchmark)}: {told(metric.name)} is {odd:g}, and {usual:g} in "
        f"the median of its version's runs, which never differ by a factor of {SPREAD}"
    )


def _known(old: Sequence[Run], before: str, new: Sequence[Run], after: str) -> dict[str, Metric]:
    """The metrics of a benchmark by name; of the resolutions that runs say the coarsest."""
    found: dict[str, Metric] = {}
    for runs, benchmark in ((old, before), (new, after)):
        for sample in _samples(runs, benchmark):
            metric = sample.metric
            if metric.gate == "never":
                continue
            known = found.setdefault(metric.name, metric)
            if known == metric:
                continue
            tolerance = max(known.tolerance, metric.tolerance)
            # A stranger's tolerance is a rule: one that a file widens would hide what is worse.
            ours = replace(metric, tolerance=0.0) == RATIO
            if not ours or replace(known, tolerance=0.0) != RATIO:
                raise Unreadable(
                    f"benchmark {named(benchmark)}: runs disagree on what {told(metric.name)} is"
                )
            found[metric.name] = replace(known, tolerance=tolerance)
    return found


def _samples(runs: Sequence[Run], benchmark: str) -> Iterator[Sample]:
    for run in runs:
        if benchmark in run.entries:
            yield from run.entries[benchmark].samples.values()


def _classes(runs: Sequence[Run], benchmark: str) -> set[float]:
    """The classes of arithmetic that a benchmark had; empty where there is one only."""
    return {
        value
        for sample in _samples(runs, benchmark)
        if sample.metric.name == ARITHMETIC.name
        for value in sample.values
    }


def _wrong(runs: Sequence[Run], benchmark: str) -> bool:
    return any(benchmark in run.entries and not run.entries[benchmark].right for run in runs)


def _recorded(runs: Sequence[Run], benchmark: str, metric: str) -> bool:
    return any(sample.metric.name == metric for sample in _samples(runs, benchmark))


def _unit(old: Sequence[Run], before: str, new: Sequence[Run], after: str) -> float | None:
    """What times are multiples of: the seconds that the work took when the old version was timed.

    None where they were not measured against the same work; then seconds are compared.
    """
    sides = [
        [run.entries[name].paced for run in runs if name in run.entries]
        for runs, name in ((old, before), (new, after))
    ]
    works = {paced.work if paced else "" for side in sides for paced in side}
    if "" in works or len(works) > 1:
        return None
    return median(pace for paced in sides[0] if paced for pace in paced.paces)


def _values(
    runs: Sequence[Run], benchmark: str, metric: Metric, unit: float | None
) -> list[tuple[float, ...]]:
    """Of each run; none where it has none, or where noise was measured on wrong outputs.

    With a `unit` they are those that were measured in multiples of it.
    """
    found: list[tuple[float, ...]] = []
    for run in runs:
        entry = run.entries.get(benchmark)
        sample = entry.samples.get(metric.name) if entry else None
        valid = entry is not None and (entry.right or metric.gate == "exact")
        if not sample or not valid:
            found.append(())
        elif unit is None or entry is None or entry.paced is None:
            found.append(sample.values)
        else:
            found.append(tuple(unit * time for time in entry.paced.times))
    return found
