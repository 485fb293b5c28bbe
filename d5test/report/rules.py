"""The two lists of twelve rules for honest figures, and what a report's own records say of each.

`MASSES`: Torsten Hoefler's ways to fool the masses with the performance of deep learning, as rules
against them. `PRACTICE`: T. Hoefler and R. Belli, Scientific Benchmarking of Parallel Computing
Systems (SC'15).

Requirements: every finding has its number, or says that the records cannot tell. What the page
itself does, whatever it shows, is kept or broken here too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from d5test.compare.comparison import UNREASONED
from d5test.compare.environment import COMMIT, HERE, MACHINE, differing
from d5test.compare.output import plain
from d5test.metric import RIGHT, TIME
from d5test.record import KEY, OPERATIONS
from d5test.report.content import Report, entries
from d5test.report.sections import collectives, steps

STATUS = ("breached", "unknown", "kept", "none")
"""What comes first in the page. `none`: nothing of the kind is reported; `unknown`: the records
do not say."""
HARDWARE = ("processor", "cores", "usable cores", "memory", "driver")
"""Facts of the machine; those of a backend's device end in `DEVICE`."""
DEVICE = ": device name"
SETUP = (
    *(name for name in MACHINE.values() if name != "cores"),
    COMMIT["id"],
    *(name.replace("_", " ") for name in HERE if name != "driver"),  # a CPU has none
    "load",
)
"""Facts without which nobody can do it again."""
RATE = f"{KEY}.flop_per_second"


@dataclass(frozen=True)
class Finding:
    """What is said of a rule."""

    status: str
    text: str


class Evidence:
    """A report, with what the rules ask of it.

    entries      of every run what was timed; a case of the corpus was not
    records      those with a record of d5test's
    rates        details of those with a rate of operations
    steps        of distributed optimizers
    collectives  calls of them
    noisy        decisions on metrics that do not repeat to the digit
    """

    def __init__(self, report: Report) -> None:
        self.report, self.comparison = report, report.comparison
        self.entries = [entry for entry in entries(report.runs) if TIME.name in entry.samples]
        self.records = [e for e in self.entries if f"{KEY}.direction" in e.detail.about]
        self.rates = [e.detail for e in self.records if RATE in e.detail.about]
        self.steps, self.collectives = steps(report), collectives(report)
        decisions = self.comparison.decisions if self.comparison else ()
        self.noisy = [d for d in decisions if d.values.metric.gate == "noise"]


@dataclass(frozen=True)
class Rule:
    """One of a list."""

    number: int
    title: str
    judge: Callable[[Evidence], Finding]


@dataclass(frozen=True)
class Rules:
    """A list, and where it stands."""

    title: str
    source: str
    rules: Sequence[Rule]

    def findings(self, evidence: Evidence) -> list[tuple[Rule, Finding]]:
        """Breaches first."""
        findings = [(rule, rule.judge(evidence)) for rule in self.rules]
        return sorted(findings, key=lambda pair: STATUS.index(pair[1].status))


ALONE = Finding("none", "no version is compared to another")


def counted(breaches: Iterable[bool], claim: str) -> Finding:
    """Breached as often as one of these is true."""
    flags = list(breaches)
    if not flags:
        return Finding("none", "nothing of the kind is reported")
    return Finding("breached" if any(flags) else "kept", f"{sum(flags)} of {len(flags)} {claim}")


def unknown(why: str) -> Callable[[Evidence], Finding]:
    """A rule of which the records say nothing."""
    return lambda evidence: Finding("unknown", why)


UNTRAINED = unknown("the records hold no training")


def _accuracy_at_scale(evidence: Evidence) -> Finding:
    ranks = [*(s.ranks for s in evidence.steps), *(c.ranks for c in evidence.collectives)]
    several = sum(count > 1 for count in ranks)
    if not several:
        return Finding("none", "nothing was timed on more than one rank")
    return Finding(
        "unknown",
        f"{several} times on more than one rank: the suite judges their results and writes "
        "no time of wrong ones, but the records do not say by how much they were right",
    )


def _hardware(evidence: Evidence) -> Finding:
    old, new = ([r.facts for r in side] for side in (evidence.report.old, evidence.report.new))
    if not old:
        return ALONE
    names = {name for facts in (*old, *new) for name in facts}
    asked = {name for name in names if name in HARDWARE or name.endswith(DEVICE)}
    if not asked:
        return Finding("unknown", "the files say nothing about the hardware")
    changed = sorted(asked & set(differing(old, new)))
    which = f" ({', '.join(map(plain, changed))})" if changed else ""
    return counted((name in changed for name in asked), f"facts of the hardware differ{which}")


def _kernels(evidence: Evidence) -> Finding:
    if evidence.steps:
        return Finding("kept", f"{len(evidence.steps)} times are of whole steps of a network")
    claim = "distributed times are of a collective alone, not of a step"
    return counted((True for _ in evidence.collectives), claim)


def _transfers(evidence: Evidence) -> Finding:
    claim = "times leave out how inputs come to the device and outputs from it"
    return counted((True for _ in evidence.records), claim)


def _operations(evidence: Evidence) -> Finding:
    others = []
    for detail in evidence.rates:
        factor = OPERATIONS.get(str(detail.about[f"{KEY}.direction"]))
        products, seconds = (
            detail.positive(f"{KEY}.{name}") for name in ("multiplications", "median")
        )
        rate = factor * products / seconds if factor and products and seconds else None
        others.append(detail.about[RATE] != rate)
    return counted(others, "rates are not 2 operations a product of the formula (4 back)")


def _same_options(evidence: Evidence) -> Finding:
    unjudged = (RIGHT.name not in entry.samples for entry in evidence.entries)
    return counted(unjudged, "times have no judgement of the outputs that were timed")


def _sizes(evidence: Evidence) -> Finding:
    unsourced = (not entry.detail.about.get(f"{KEY}.source") for entry in evidence.records)
    return counted(unsourced, "problems do not say where their sizes are from")


def _minibatch(evidence: Evidence) -> Finding:
    sizes: dict[str, set[float]] = {}
    for step in evidence.steps:
        share = step.samples / step.ranks if step.mode == "weak" else step.samples
        sizes.setdefault(step.series, set()).add(share)
    changed = (len(shares) > 1 for shares in sizes.values())
    return counted(changed, "series change the minibatch (weak scaling: of a rank)")


def _rival(evidence: Evidence) -> Finding:
    if evidence.comparison is None:
        return ALONE
    matching = evidence.comparison.matching
    left = {*(vanished.name for vanished in matching.vanished), *matching.changed}
    names = {entry.name for entry in entries(evidence.report.old)}
    claim = "benchmarks of the old version are not compared"
    return counted((name in left for name in names), claim)


MASSES = Rules(
    "Twelve ways to fool the masses",
    "T. Hoefler, on performance of deep learning",
    (
        Rule(1, "Accuracy stands beside the performance at scale", _accuracy_at_scale),
        Rule(2, "Test accuracy is reported", UNTRAINED),
        Rule(
            3, "All training runs for tuning are reported", unknown("the records hold no tuning")
        ),
        Rule(4, "Old hardware is not compared with new", _hardware),
        Rule(5, "Scaling is that of the whole, not of a kernel", _kernels),
        Rule(6, "Input and output are in the time", _transfers),
        Rule(7, "Operations are counted one way", _operations),
        Rule(8, "Performance and accuracy have the same options", _same_options),
        Rule(9, "Inputs have a size that somebody uses", _sizes),
        Rule(10, "It is not trained for just the right time", UNTRAINED),
        Rule(11, "The minibatch is not sized for the figure", _minibatch),
        Rule(12, "The rival is not chosen with care", _rival),
    ),
)


def _base_case(evidence: Evidence) -> Finding:
    without = [step.base is None for step in evidence.steps if step.ranks > 1]
    if without:
        return counted(without, "speedups have no base case in their run")
    if evidence.comparison is None:
        return Finding("none", "no speedup is reported")
    claim = "changes stand without the absolute values of both versions"
    return counted((False for _ in evidence.comparison.decisions), claim)


def _subsets(evidence: Evidence) -> Finding:
    reasons = [why for run in evidence.report.runs for why in run.untimed.values()]
    if evidence.comparison is not None:
        reasons += [vanished.reason for vanished in evidence.comparison.matching.vanished]
    if not reasons:
        return Finding("kept", "0 benchmarks are left out")
    silent = (not why.strip() or why.endswith(UNREASONED) for why in reasons)
    return counted(silent, "benchmarks are left out without a reason")


def _ratios(evidence: Evidence) -> Finding:
    summarises = evidence.report.rule.summarises
    if not evidence.noisy or not summarises:
        return Finding("kept", "0 ratios are averaged")
    return Finding("breached", f"{len(evidence.noisy)} {summarises}")


def _deterministic(evidence: Evidence) -> Finding:
    interval = f"{KEY}.median_interval_95.0"
    few = (interval not in entry.detail.about for entry in evidence.records)
    return counted(few, "medians have too few rounds for a 95% interval")


def _normality(evidence: Evidence) -> Finding:
    decisions = evidence.comparison.decisions if evidence.comparison else ()
    limits = sum(decision.limit is not None for decision in decisions)
    if not limits:
        return Finding("kept", "0 limits are shown, and intervals of medians are order statistics")
    assumes = evidence.report.rule.assumes
    if not assumes:
        return Finding("kept", f"{limits} limits assume no distribution")
    return Finding("breached", f"{limits} {assumes}")


def _sound(evidence: Evidence) -> Finding:
    if evidence.comparison is None:
        return ALONE
    blind = (decision.limit is None for decision in evidence.noisy)
    return counted(blind, "comparisons of noisy metrics know no noise floor")


def _percentiles(evidence: Evidence) -> Finding:
    alone = (entry.detail.count == 0 for entry in evidence.entries)
    return counted(alone, "times have no rounds in the file, so no percentiles")


def _setup(evidence: Evidence) -> Finding:
    runs = evidence.report.runs
    missing = [name for name in SETUP if any(name not in run.facts for run in runs)]
    which = f" ({', '.join(missing)})" if missing else ""
    claim = f"facts of the set-up are not in every file{which}"
    return counted((name in missing for name in SETUP), claim)


def _parallel(evidence: Evidence) -> Finding:
    every = [*(s.imbalance for s in evidence.steps), *(c.imbalance for c in evidence.collectives)]
    unknown = (imbalance is None for imbalance in every)
    return counted(unknown, "times of several ranks do not say how uneven they were")


def _bounds(evidence: Evidence) -> Finding:
    claim = "rates stand without the most that the machine can do"
    return counted((True for _ in evidence.rates), claim)


def _lines(evidence: Evidence) -> Finding:
    joined = len({step.series for step in evidence.steps})
    return Finding("kept", f"{joined} lines, each over the ranks of one run of one optimizer")


PRACTICE = Rules(
    "Twelve rules of scientific benchmarking",
    "T. Hoefler and R. Belli, SC'15",
    (
        Rule(1, "Base case and absolute performance with every speedup", _base_case),
        Rule(2, "Reasons for what is left out", _subsets),
        Rule(
            3,
            "Arithmetic means of costs only, harmonic of rates",
            lambda evidence: Finding("kept", "0 means: fastest rounds, and medians"),
        ),
        Rule(4, "No means of ratios", _ratios),
        Rule(5, "Deterministic, or with confidence intervals", _deterministic),
        Rule(6, "No normality assumed", _normality),
        Rule(7, "A sound comparison", _sound),
        Rule(8, "Percentiles where mean or median do not matter", _percentiles),
        Rule(9, "All factors and the set-up", _setup),
        Rule(10, "Parallel times: how measured and summed up", _parallel),
        Rule(11, "Upper bounds", _bounds),
        Rule(12, "Lines only between what may be joined", _lines),
    ),
)
