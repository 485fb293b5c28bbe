"""Twelve rules for benchmarking parallel systems, and what the records and this page do of each.

After T. Hoefler and R. Belli, Scientific Benchmarking of Parallel Computing Systems (SC'15).
"""

from __future__ import annotations

from d5test.compare import Comparison, Decision
from d5test.compare.environment import COMMIT, HERE, MACHINE
from d5test.record import KEY
from d5test.report.rules import Evidence, Finding, Rule, Rules, counted

SETUP = (
    *(name for name in MACHINE.values() if name != "cores"),
    COMMIT["id"],
    *(name.replace("_", " ") for name in HERE if name != "driver"),  # a CPU has none
    "load",
)
"""Facts without which nobody can do it again."""
UNREASONED = "it was not run"
"""What is said of a benchmark that vanished without a reason in the file."""


def _base_case(found: Evidence) -> Finding:
    several = [step for step in found.steps if step.ranks > 1]
    if several:
        without = sum(step.base is None for step in several)
        return counted(without, len(several), "speedups have no base case in their run")
    if found.report.comparison is None:
        return Finding("none", "no speedup is reported")
    n = len(found.report.comparison.decisions)
    return counted(0, n, "changes stand without the absolute values of both versions")


def _subsets(found: Evidence) -> Finding:
    reasons = [why for run in found.report.runs for why in run.untimed.values()]
    if found.report.comparison is not None:
        reasons += [gone.reason for gone in found.report.comparison.matching.vanished]
    if not reasons:
        return Finding("kept", "0 benchmarks are left out")
    silent = sum(not why.strip() or why.endswith(UNREASONED) for why in reasons)
    return counted(silent, len(reasons), "benchmarks are left out without a reason")


def _ratios(found: Evidence) -> Finding:
    comparison, summarises = found.report.comparison, found.report.rule.summarises
    changed = _noisy(comparison) if comparison else []
    if not changed or not summarises:
        return Finding("kept", "0 ratios are averaged")
    return Finding("breached", f"{len(changed)} {summarises}")


def _deterministic(found: Evidence) -> Finding:
    few = sum(f"{KEY}.median_interval_95.0" not in d.about for _, d in found.records)
    return counted(few, len(found.records), "medians have too few rounds for a 95% interval")


def _normality(found: Evidence) -> Finding:
    comparison = found.report.comparison
    limits = [d for d in comparison.decisions if d.limit is not None] if comparison else []
    if not limits:
        return Finding("kept", "0 limits are shown, and intervals of medians are order statistics")
    assumes = found.report.rule.assumes
    if not assumes:
        return Finding("kept", f"{len(limits)} limits assume no distribution")
    return Finding("breached", f"{len(limits)} {assumes}")


def _sound(found: Evidence) -> Finding:
    comparison = found.report.comparison
    if comparison is None:
        return Finding("none", "no version is compared to another")
    noisy = _noisy(comparison)
    blind = sum(d.limit is None for d in noisy)
    return counted(blind, len(noisy), "comparisons of noisy metrics know no noise floor")


def _percentiles(found: Evidence) -> Finding:
    alone = sum(d.count == 0 for _, d in found.entries)
    return counted(
        alone, len(found.entries), "times have no rounds in the file, so no percentiles"
    )


def _setup(found: Evidence) -> Finding:
    runs = found.report.runs
    missing = [name for name in SETUP if any(name not in run.facts for run in runs)]
    named = f" ({', '.join(missing)})" if missing else ""
    return counted(len(missing), len(SETUP), f"facts of the set-up are not in every file{named}")


def _parallel(found: Evidence) -> Finding:
    every = [*(s.imbalance for s in found.steps), *(c.imbalance for c in found.collectives)]
    return counted(
        every.count(None), len(every), "times of several ranks do not say how uneven they were"
    )


def _bounds(found: Evidence) -> Finding:
    rates = sum(f"{KEY}.flop_per_second" in d.about for _, d in found.records)
    return counted(rates, rates, "rates stand without the most that the machine can do")


def _lines(found: Evidence) -> Finding:
    joined = len({step.series for step in found.steps})
    return Finding("kept", f"{joined} lines, each over the ranks of one run of one optimizer")


def _noisy(comparison: Comparison) -> list[Decision]:
    return [d for d in comparison.decisions if d.values.metric.gate == "noise"]


RULES = Rules(
    "Twelve rules of scientific benchmarking",
    "T. Hoefler and R. Belli, SC'15",
    (
        Rule(1, "Base case and absolute performance with every speedup", _base_case),
        Rule(2, "Reasons for what is left out", _subsets),
        Rule(
            3,
            "Arithmetic means of costs only, harmonic of rates",
            lambda found: Finding("kept", "0 means: fastest rounds, and medians"),
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
