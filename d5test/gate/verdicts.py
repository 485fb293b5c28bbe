"""What is decided in the end, of all benchmarks together: their noise is each other's measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import expm1, log1p

import numpy as np

from d5test.compare.decision import Decision, Values, noisy
from d5test.compare.noise import BENCHMARK, POWER, holm
from d5test.gate.decider import PAIRS, Decider, centre, chance, floor, noise_of
from d5test.gate.evidence import GATED, Evidence
from d5test.metric import Metric

Found = Mapping[str, Mapping[Metric, Evidence]]
"""By benchmark and metric."""


class Verdicts:
    """Decides on a metric of all benchmarks by the evidence."""

    def __init__(self, found: Found, decider: Decider) -> None:
        self._found, self._decider = found, decider
        self._floors = {
            metric: floor([metrics[metric] for metrics in found.values()]) for metric in GATED
        }
        ps = {
            (name, metric): chance(decider.pairs(evidence))
            for name, metrics in found.items()
            for metric, evidence in metrics.items()
            if evidence.pairs and decider.charge(evidence)
        }
        levels = holm(np.array([*ps.values()], dtype=np.float64), len(ps))
        self._levels = dict(zip(ps, map(float, levels), strict=True))

    def __call__(self, rows: Sequence[Values], effect: float) -> list[Decision]:
        """See `d5test.compare.comparison.Decider`."""
        others = [row for row in rows if row.metric not in GATED]
        return [self._decision(row) for row in rows if row.metric in GATED] + noisy(others, effect)

    def of(self, metric: Metric) -> dict[str, str]:
        """The verdicts on one metric alone, by benchmark."""
        rows = [Values(name, name, metric, [], []) for name in self._found]
        return {row.benchmark: self._decision(row).verdict for row in rows}

    def _decision(self, row: Values) -> Decision:
        evidence = self._found.get(row.benchmark, {}).get(row.metric)
        if evidence is None or not evidence.shifts:
            return Decision(row, "unsure", "it was not measured in all arms")
        if (row.benchmark, row.metric) in self._levels:
            return self._confronted(row, evidence)
        return self._screened(row, evidence)

    def _screened(self, row: Values, evidence: Evidence) -> Decision:
        decider = self._decider
        noise = noise_of(evidence, self._floors[row.metric])
        detectable = decider.detectable(noise)
        told = {"limit": expm1(decider.limit), "detectable": expm1(detectable)}
        change = expm1(evidence.shift)
        if decider.obvious(evidence, noise):
            verdict = "worse" if decider.charge(evidence) > 0 else "better"
            why = f"in all of {len(evidence.shifts)} sessions, far beyond the noise"
            return Decision(row, verdict, why, change, **told)
        if decider.charge(evidence):
            why = "the budget was spent before pairs of fresh processes told"
            return Decision(row, "unsure", why, change, **told)
        return _same_or_unsure(row, change, told, decider.effect)

    def _confronted(self, row: Values, evidence: Evidence) -> Decision:
        decider, sign = self._decider, self._decider.charge(evidence)
        pairs = decider.pairs(evidence)
        level = self._levels[row.benchmark, row.metric]
        detectable = expm1(decider.confirmable(pairs, level))
        told = {"limit": expm1(decider.limit), "detectable": detectable}
        change, agree = expm1(sign * centre(pairs)), sum(d > 0 for d in pairs)
        if decider.guilty(pairs, level):
            why = f"in {agree} of {len(pairs)} pairs of fresh processes"
            return Decision(row, "worse" if sign > 0 else "better", why, change, **told)
        if len(pairs) < PAIRS and decider.settled(pairs, BENCHMARK) is not False:
            why = f"in {agree} of {len(pairs)} pairs; the budget was spent before {PAIRS}"
            return Decision(row, "unsure", why, change, **told)
        return _same_or_unsure(row, change, told, decider.effect)


def _same_or_unsure(
    row: Values, change: float, told: Mapping[str, float], effect: float
) -> Decision:
    seen = told["detectable"]
    if log1p(seen) <= log1p(effect):
        return Decision(row, "same", f"{seen:.1%} would have been found", change, **told)
    why = f"nothing below {seen:.1%} would be found with a probability of {POWER:.0%}"
    return Decision(row, "unsure", why, change, **told)
