"""Which benchmarks are suspects, when a suspicion is settled, and what is decided in the end.

Three stages, each on measurements of its own. A session tells who is suspect; restarts in other
orders of start, who stays so; pairs of fresh processes, who is guilty. The last decides what is
small: under identical code a pair is as likely above zero as it is as far below, whatever load,
clock and memory layout are, since the order in it is drawn; and it knows nothing of why the
benchmark was chosen. What is many times the effect and the noise, twice, needs no pairs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import expm1, inf, log1p, sqrt
from statistics import median

import numpy as np
from scipy.special import ndtri

from d5test.compare.decision import Decision, Values, noisy
from d5test.compare.noise import BENCHMARK, POWER, holm
from d5test.gate.evidence import DEVIATION, GATED, Evidence
from d5test.metric import Metric

Found = Mapping[str, Mapping[Metric, Evidence]]
"""By benchmark and metric."""

SESSIONS = 3
"""Sessions until a suspect is given over to pairs."""
FAR, BEYOND = 5, 10
"""Times the effect, and the noise, from which on nothing is left to be confirmed."""
LOOKS = {12: 0.25, 20: 0.25, 40: 0.5}
"""After how many pairs of fresh processes they may convict, with what share of the probability.

What is clear is so after twelve; what differs much from process to process takes more.
"""
PAIRS = max(LOOKS)
"""Pairs at most; fewer where the outcome no longer depends on the rest."""
FEW, CLEARLY = 6, 1.5
"""Pairs from which on nobody is held whose centre is below the limit by so many of its errors."""
BOUNDLESS = 1e3
"""A logarithm that no pair has."""


@dataclass(frozen=True)
class Decider:
    """Decides for a slowdown of `effect` (0.05 is 5%) that is to be found.

    limit   half of it, in logarithms: to find 5% the limit has to be near 2.5%
    screen  two fifths of it: who is below in the median of the sessions is no suspect, unless
            that errs so much that a slowdown of the effect would often be, too
    error   a fifth of it: a session goes on until it errs by no more, or takes too long
    """

    effect: float = 0.05

    @property
    def limit(self) -> float:
        """The least change that is called one."""
        return log1p(self.effect) / 2

    @property
    def screen(self) -> float:
        """The least shift of a suspect."""
        return log1p(self.effect) * 2 / 5

    @property
    def error(self) -> float:
        """What the shift of a session may err by, if that can be had."""
        return log1p(self.effect) / 5

    def charge(self, evidence: Evidence) -> int:
        """What sessions so far speak of: 1 of a slowdown, -1 of an improvement, 0 of neither.

        A slowdown of the effect is to be seen, whatever the sessions err by. An improvement stops
        no release: it has to be there in all sessions and beyond their error, which costs little.
        """
        margin = float(ndtri(POWER)) * evidence.error
        if evidence.shift > min(self.screen, max(log1p(self.effect) - margin, 0.0)):
            return 1
        return -1 if max(evidence.shifts) < -self.limit - margin else 0

    def obvious(self, evidence: Evidence, noise: float) -> bool:
        """Whether a session and a restart leave no doubt: far beyond the effect and the noise."""
        agreed = [self.charge(evidence) * shift for shift in evidence.shifts]
        far = max(FAR * log1p(self.effect), BEYOND * noise)
        return len(agreed) > 1 and min(agreed) > far

    def pairs(self, evidence: Evidence) -> list[float]:
        """The pairs, above zero where they confirm the charge."""
        return [self.charge(evidence) * pair for pair in evidence.pairs]

    def settled(self, pairs: Sequence[float], level: float) -> bool | None:
        """Whether the pairs convict, once no further pair will change that; None: not yet.

        pairs   above zero where they confirm the charge
        level   the error probability; the strictest that may become the benchmark's (Holm's
                procedure only makes it larger), so that what convicts now also does in the end
        """
        left = PAIRS - len(pairs)
        if self.guilty([*pairs, *[-BOUNDLESS] * left], level):
            return True
        if not self.guilty([*pairs, *[BOUNDLESS] * left], BENCHMARK):
            return False
        if len(pairs) >= FEW and centre(pairs) + CLEARLY * error(pairs) < self.limit:
            return False
        return None

    def guilty(self, pairs: Sequence[float], level: float) -> bool:
        """Whether the pairs' centre is beyond the limit, and no chance at this level."""
        return any(centre(seen) > self.limit and p <= level for seen, p in looks(pairs))

    def detectable(self, noise: float) -> float:
        """The least slowdown, in logarithms, that a session makes a suspect with `POWER`."""
        return self.screen + float(ndtri(POWER)) * noise

    def confirmable(self, pairs: Sequence[float], level: float) -> float:
        """Likewise of the pairs."""
        if len(pairs) < 2:
            return inf
        deviation, left = error(pairs), level * _share(len(pairs))
        return max(self.limit, -float(ndtri(left)) * deviation) + float(ndtri(POWER)) * deviation


def centre(pairs: Sequence[float]) -> float:
    """The median of the means of any two of them: Hodges and Lehmann (1963)."""
    one = np.asarray(pairs, dtype=np.float64)
    means = (one[:, None] + one) / 2
    return float(np.median(means[np.triu_indices(len(one))]))


def error(pairs: Sequence[float]) -> float:
    """Of their centre: sqrt(pi / 3) that of a mean, where they are normal."""
    return float(np.std(pairs, ddof=1)) * sqrt(np.pi / 3 / len(pairs))


def looks(pairs: Sequence[float]) -> Iterator[tuple[Sequence[float], float]]:
    """The pairs at each look, and their probability as a part of its share.

    Where the budget ends between two looks, that is one too, in place of the next.
    """
    for count in sorted({min(most, len(pairs)) for most in LOOKS} - {0}):
        yield pairs[:count], signed_rank_p(pairs[:count]) / _share(count)


def chance(pairs: Sequence[float]) -> float:
    """The least of the looks: the probability that pairs of identical code look like these."""
    return min([1.0, *(p for _, p in looks(pairs))])


def _share(count: int) -> float:
    """Of the error probability, that of a look after so many pairs."""
    return next(share for most, share in LOOKS.items() if count <= most)


def signed_rank_p(pairs: Sequence[float]) -> float:
    """The probability of pairs as far above zero where each might as well be as far below.

    Exact, by all signs that the pairs might have: Wilcoxon (1945). Of what is as far from zero
    each has the mean of the ranks; zero is not above.
    """
    far = np.abs(pairs)
    ordered = np.sort(far)
    below, up_to = np.searchsorted(ordered, far, "left"), np.searchsorted(ordered, far, "right")
    doubled = below + up_to + 1  # twice the ranks: whole numbers
    ways = np.zeros(int(doubled.sum()) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy()
    above = int(doubled[np.asarray(pairs) > 0].sum())
    return float(ways[above:].sum() / ways.sum())


def noise_of(evidence: Evidence, floor: float) -> float:
    """What the shift of a benchmark errs by: as all do, or more where its own blocks say so."""
    return max(floor, median(evidence.errors))


def floor(evidences: Iterable[Evidence]) -> float:
    """What a shift errs by, of all benchmarks of a metric: robust, a few may be disturbed.

    With errors of variance v in each arm a control has 2 v, a shift 3/2 v.
    """
    every = [abs(control) for evidence in evidences for control in evidence.controls]
    return DEVIATION * sqrt(0.75) * median(every) if every else inf


def floors(found: Found) -> dict[Metric, float]:
    """What shifts err by, of each metric."""
    return {metric: floor([metrics[metric] for metrics in found.values()]) for metric in GATED}


class Verdicts:
    """What is decided in the end, of all benchmarks: their noise is each other's measure."""

    def __init__(self, found: Found, decider: Decider) -> None:
        self._found, self._decider, self._floors = found, decider, floors(found)
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
        level = self._levels.get((row.benchmark, row.metric))
        if level is None:
            noise = noise_of(evidence, self._floors[row.metric])
            verdict, why = self._screened(evidence, noise)
            change, seen = evidence.shift, expm1(self._decider.detectable(noise))
        else:
            pairs = self._decider.pairs(evidence)
            verdict, why = self._confronted(evidence, pairs, level)
            change = self._decider.charge(evidence) * centre(pairs)
            seen = expm1(self._decider.confirmable(pairs, level))
        if not verdict and log1p(seen) <= log1p(self._decider.effect):
            verdict, why = "same", f"{seen:.1%} would have been found"
        elif not verdict:
            verdict = "unsure"
            why = f"nothing below {seen:.1%} would be found with a probability of {POWER:.0%}"
        limit = expm1(self._decider.limit)
        return Decision(row, verdict, why, expm1(change), limit=limit, detectable=seen)

    def _screened(self, evidence: Evidence, noise: float) -> tuple[str, str]:
        """What sessions tell, and why; nothing if they saw no difference."""
        charge = self._decider.charge(evidence)
        if self._decider.obvious(evidence, noise):
            why = f"in all of {len(evidence.shifts)} sessions, far beyond the noise"
            return "worse" if charge > 0 else "better", why
        if charge:
            return "unsure", "the budget was spent before pairs of fresh processes could decide"
        return "", ""

    def _confronted(
        self, evidence: Evidence, pairs: Sequence[float], level: float
    ) -> tuple[str, str]:
        """What pairs tell, and why; nothing if they do not convict."""
        agree = sum(d > 0 for d in pairs)
        if self._decider.guilty(pairs, level):
            why = f"in {agree} of {len(pairs)} pairs of fresh processes"
            return "worse" if self._decider.charge(evidence) > 0 else "better", why
        if len(pairs) < PAIRS and self._decider.settled(pairs, BENCHMARK) is not False:
            why = f"in {agree} of {len(pairs)} pairs; the budget was spent before {PAIRS}"
            return "unsure", why
        return "", ""
