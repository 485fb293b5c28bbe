"""Two versions compared: matched, decided metric by metric, and summed up in a verdict.

Requirements: everything that the outputs and the report say is in here, and is computed from the
runs alone. A benchmark is what it computes; a name that now means something else is not compared,
and something that only has another name is.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from d5test.compare.decision import VERDICTS, Decision, Values, exact, noisy, worst_first
from d5test.compare.entry import Entry
from d5test.compare.environment import differing
from d5test.compare.numbers import SPREAD, Unreadable, named, quoted
from d5test.compare.reading import Run, uncollected
from d5test.metric import ARITHMETIC, RATIO, TIME, Metric

EFFECT = 0.05
"""The slowdown that is to be found; a change below half of it is called none."""
WRONG = "the timed outputs are wrong"
"""What the reason says of a benchmark that ran, and whose time does not count."""
UNREASONED = "it was not run"
"""What it says where the file has no reason."""
Decider = Callable[[Sequence[Values], float], list[Decision]]
"""Decides on one metric of many benchmarks, to find changes of a size."""
Entries = Sequence[Entry | None]
"""One benchmark in each run of a version; None where a run has it not."""


@dataclass(frozen=True)
class Vanished:
    """A benchmark that the new version has not, or not in each run, and why."""

    name: str
    operator: str
    reason: str

    @property
    def wrong(self) -> bool:
        """Whether it ran, with wrong outputs."""
        return WRONG in self.reason


@dataclass(frozen=True)
class Matching:
    """Names of benchmarks, in the order of the files.

    pairs     old name and new name of what is compared: equal, but for what was `renamed`
    renamed   those pairs whose names differ
    changed   the same name of something else now: not compared
    """

    pairs: Sequence[tuple[str, str]]
    renamed: Sequence[tuple[str, str]]
    changed: Sequence[str]
    new: Sequence[str]
    vanished: Sequence[Vanished]


@dataclass(frozen=True)
class Exchange:
    """Kernels of a benchmark, by its new name: that only old runs had, that only new ones have.

    Nothing is decided upon it: it is told beside a time.
    """

    name: str
    gone: Sequence[str]
    come: Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """Decisions worst first; the facts of the environment that differ.

    kernels what other kernels the new version runs
    effect  the slowdown that was to be found
    strict  what is unsure fails
    """

    old: Sequence[Run]
    new: Sequence[Run]
    matching: Matching
    decisions: Sequence[Decision]
    environment: Mapping[str, tuple[str, str]]
    kernels: Sequence[Exchange] = ()
    effect: float = EFFECT
    strict: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Decisions by verdict."""
        counts = Counter(decision.verdict for decision in self.decisions)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    @property
    def lost(self) -> list[str]:
        """Operators of which no benchmark is left; one whose results are wrong is still there."""
        left = {e.operator for run in self.new for e in run.entries.values()}
        left |= {v.operator for v in self.matching.vanished if v.wrong}
        gone = dict.fromkeys(v.operator for v in self.matching.vanished if v.operator)
        return [operator for operator in gone if operator not in left]

    @property
    def times(self) -> list[Decision]:
        """Those on times."""
        return [d for d in self.decisions if d.values.metric == TIME]

    @property
    def blind(self) -> bool:
        """Whether no benchmark could have shown the slowdown, or nothing was compared at all."""
        return all(d.verdict == "unsure" for d in self.times or self.decisions)

    @property
    def verdict(self) -> str:
        """`regressed`, or `unsure` if something could not be decided, or `passed`."""
        if self.counts["worse"] or self.matching.vanished:
            return "regressed"
        undecided = self.counts["unsure"] or self.matching.changed or not self.decisions
        return "unsure" if undecided else "passed"


@uncollected()
def compare(
    old: Sequence[Run], new: Sequence[Run], effect: float = EFFECT, decide: Decider = noisy
) -> Comparison:
    """Decide on every metric that both versions have.

    effect  see `noise.shifts`
    decide  on metrics that do not repeat to the digit: of stored runs, or of the gate's session
    """
    matching = match(old, new)
    decisions: list[Decision] = []
    undecided: dict[str, list[Values]] = {}
    for before, after in matching.pairs:
        for row in _metrics(old, new, before, after):
            if isinstance(row, Decision):
                decisions.append(row)
            elif row.metric.gate == "noise":
                undecided.setdefault(row.metric.name, []).append(row)
            else:
                decisions.append(exact(row))
    for rows in undecided.values():
        decisions += decide(rows, effect)
    facts = [[run.facts for run in side] for side in (old, new)]
    return Comparison(
        old, new, matching, worst_first(decisions), differing(*facts),
        list(_exchanges(old, new, matching)), effect,
    )  # fmt: skip


def match(old: Sequence[Run], new: Sequence[Run]) -> Matching:
    """Match by name, and what is left by what it is."""
    before, after = _identities(old), _identities(new)
    common = [name for name in before if name in after]
    kept = [(name, name) for name in common if before[name] == after[name]]
    moved = _moved(
        {name: before[name] for name in before if name not in after},
        {name: after[name] for name in after if name not in before},
    )
    arrived = set(moved.values())
    unmoved = [name for name in before if name not in moved]
    return Matching(
        pairs=[*kept, *moved.items()],
        renamed=[*moved.items()],
        changed=[name for name in common if before[name] != after[name]],
        new=[name for name in after if name not in before and name not in arrived],
        vanished=list(_vanished(unmoved, old, new, after)),
    )


def _exchanges(old: Sequence[Run], new: Sequence[Run], matching: Matching) -> Iterator[Exchange]:
    """What other kernels run, where both versions tell which do."""
    for before, after in matching.pairs:
        olds, news = _kernels(old, before), _kernels(new, after)
        gone = [kernel for kernel in olds if kernel not in news]
        come = [kernel for kernel in news if kernel not in olds]
        if olds and news and (gone or come):
            yield Exchange(after, gone, come)


def _kernels(side: Sequence[Run], name: str) -> list[str]:
    """Those that any run of a benchmark tells, each once."""
    entries = filter(None, (run.entries.get(name) for run in side))
    return list(dict.fromkeys(kernel for entry in entries for kernel in entry.kernels))


def _identities(side: Sequence[Run]) -> dict[str, str]:
    """What each name of a side stands for; within a side it must be one thing."""
    identities: dict[str, str] = {}
    for run in side:
        for name, entry in run.entries.items():
            if identities.setdefault(name, entry.identity) != entry.identity:
                raise Unreadable(
                    f"{run.path}: benchmark {named(name)} is another one in the same side's runs"
                )
    return identities


def _moved(gone: Mapping[str, str], come: Mapping[str, str]) -> dict[str, str]:
    """The new names by the old ones, of what exactly one benchmark of each side is."""
    counts = Counter(gone.values()), Counter(come.values())
    names = {identity: name for name, identity in come.items()}
    return {
        name: names[identity]
        for name, identity in gone.items()
        if identity and counts[0][identity] == counts[1][identity] == 1
    }


def _vanished(
    names: Iterable[str], old: Sequence[Run], new: Sequence[Run], after: Mapping[str, str]
) -> Iterator[Vanished]:
    for name in names:
        lacking = [run for run in new if name not in run.entries]
        if not lacking or (name in after and any(name not in run.entries for run in old)):
            continue
        operator = next(run.entries[name].operator for run in old if name in run.entries)
        # files of other tests lack it too: the one that was to have it says why it has not
        reasons = (run.untimed[name] for run in lacking if name in run.untimed)
        reason = next(reasons, UNREASONED)
        if len(lacking) < len(new):
            reason = f"in {len(lacking)} of {len(new)} runs: {reason}"
        yield Vanished(name, operator, reason)


def _metrics(
    old: Sequence[Run], new: Sequence[Run], name_before: str, name_after: str
) -> Iterator[Values | Decision]:
    """Each metric of a benchmark that the old version has, and that is gated."""
    before = [run.entries.get(name_before) for run in old]
    after = [run.entries.get(name_after) for run in new]
    for name, metric in _known(before, after).items():
        if name == RATIO.name and _classes(before) != _classes(after):
            continue  # bars of another class; the class itself is compared
        unit = _unit(before, after) if name == TIME.name else None
        sides = _values(before, metric, unit), _values(after, metric, unit)
        values = Values(name_after, name_before, metric, *sides)
        if metric.gate == "noise":
            _check_spread(old, name_before, metric, values.old)
            _check_spread(new, name_after, metric, values.new)
        if values.before and values.after:
            yield values
        elif not _recorded(before, name):
            continue
        elif not _recorded(after, name):
            if name == RATIO.name and any(entry and not entry.right for entry in after):
                continue  # an error without end has no ratio: that it is wrong says it all
            verdict = "unsure" if metric.gate == "noise" else "worse"
            yield Decision(values, verdict, "is recorded no longer")
        else:
            yield Decision(values, "unsure", "invalid: the timed outputs were wrong")


def _check_spread(
    runs: Sequence[Run], benchmark: str, metric: Metric, values: Sequence[Sequence[float]]
) -> None:
    """Raise `Unreadable` where runs of one version differ by more than any noise does.

    One such value would make every limit so wide that nothing is found to be worse.
    """
    every = [(value, run.path) for run, side in zip(runs, values, strict=True) for value in side]
    least, most = min(every, default=(1.0, "")), max(every, default=(1.0, ""))
    if most[0] <= SPREAD * least[0]:
        return
    usual = median(value for value, _ in every)
    odd, path = least if usual / least[0] >= most[0] / usual else most
    raise Unreadable(
        f"{path}: benchmark {named(benchmark)}: {quoted(metric.name)} is {odd:g}, and {usual:g} "
        f"in the median of its version's runs, which never differ by a factor of {SPREAD}"
    )


def _known(before: Entries, after: Entries) -> dict[str, Metric]:
    """The metrics of a benchmark by name; of the resolutions that runs say the coarsest."""
    known: dict[str, Metric] = {}
    for entry in filter(None, (*before, *after)):
        for name, sample in entry.samples.items():
            if sample.metric.gate == "never":
                continue
            metric, other = sample.metric, known.setdefault(name, sample.metric)
            if metric == other:
                continue
            # A stranger's tolerance is a rule: one that a file widens would hide what is worse.
            if not replace(metric, tolerance=0.0) == replace(other, tolerance=0.0) == RATIO:
                raise Unreadable(
                    f"benchmark {named(entry.name)}: runs disagree on what {quoted(name)} is"
                )
            known[name] = max(metric, other, key=lambda m: m.tolerance)
    return known


def _classes(entries: Entries) -> set[float]:
    """The classes of arithmetic that a benchmark had; empty where there is one only."""
    samples = (entry.samples.get(ARITHMETIC.name) for entry in entries if entry)
    return {value for sample in samples if sample for value in sample.values}


def _recorded(entries: Entries, metric: str) -> bool:
    return any(metric in entry.samples for entry in entries if entry)


def _unit(before: Entries, after: Entries) -> float | None:
    """What times are multiples of: the seconds that the work took when the old version was timed.

    None where they were not measured against the same work; then seconds are compared.
    """
    old, new = ([entry.paced for entry in entries if entry] for entries in (before, after))
    works = {paced.work if paced else "" for paced in (*old, *new)}
    if "" in works or len(works) > 1:
        return None
    return median(pace for paced in old if paced for pace in paced.paces)


def _values(entries: Entries, metric: Metric, unit: float | None) -> list[tuple[float, ...]]:
    """Of each run; none where it has none, or where noise was measured on wrong outputs.

    With a `unit` they are those that were measured in multiples of it.
    """
    values: list[tuple[float, ...]] = []
    for entry in entries:
        sample = entry.samples.get(metric.name) if entry else None
        if entry is None or sample is None or not (entry.right or metric.gate == "exact"):
            values.append(())
        elif unit is None or entry.paced is None:
            values.append(sample.values)
        else:
            values.append(tuple(unit * time for time in entry.paced.times))
    return values
