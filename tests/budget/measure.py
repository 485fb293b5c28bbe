"""How two things are compared: in turn, in random order, pair by pair.

Requirements: both sides of a pair run within one round, the second side a second time too (the A/A
arm: what a difference of nothing looks like in this run). Where nothing is waited for, seconds are
the process' CPU seconds, which others on the machine do not take away. No distribution is assumed:
intervals are those of the median from order statistics.
"""

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from d5test.metric import median_interval

Clock = Callable[[], float]
"""Does its work and returns the seconds that a unit of it took."""
OURS, THEIRS, AGAIN = "ours", "theirs", "theirs again"


@dataclass(frozen=True)
class Line:
    """A quantity, its A/A twin, and the bound that its interval's upper limit must keep."""

    what: str
    unit: str
    values: tuple[float, ...]
    same: tuple[float, ...]
    bound: float | None
    context: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """Of the median, 95%, nonparametric."""
        return interval(self.values)

    @property
    def verdict(self) -> str:
        """Met if the whole interval keeps the bound; empty without one: for information.

        Unsure if it does not, but the A/A arm breaks the bound as well: this run could not tell.
        """
        low, high = self.interval
        if self.bound is None:
            return ""
        if high <= self.bound:
            return "met"
        noise = interval(self.same)[1]
        return "unsure" if noise > self.bound and low <= noise else "NOT MET"

    def cells(self) -> tuple[str, ...]:
        """What is printed: what, median, interval, A/A, bound, met, context."""
        low, high = self.interval
        same = interval(self.same) if self.same else None
        return (
            self.what,
            f"{np.median(self.values):.4g} {self.unit}",
            f"[{low:.4g}, {high:.4g}]",
            f"[{same[0]:.4g}, {same[1]:.4g}]" if same else "",
            "" if self.bound is None else f"{self.bound:g} {self.unit}",
            self.verdict,
            self.context,
        )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95%; all that was seen where that is too little to say so."""
    return median_interval(values) or (min(values), max(values))


def in_turn(
    arms: Mapping[str, Clock], *, rounds: int, seconds: float, least: int = 6
) -> dict[str, np.ndarray]:
    """Each arm once a round, in random order; up to `rounds` within `seconds`, `least` anyway."""
    order, chance = list(arms), random.Random(0)
    for clock in arms.values():
        clock()
    times: dict[str, list[float]] = {name: [] for name in arms}
    end = time.monotonic() + seconds
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        while len(times[order[0]]) < least or (
            len(times[order[0]]) < rounds and time.monotonic() < end
        ):
            chance.shuffle(order)
            for name in order:
                times[name].append(arms[name]())
    finally:
        if collecting:
            gc.enable()
    return {name: np.array(values) for name, values in times.items()}


def clock(call: Callable[[], object], least: float = 0.002) -> Clock:
    """CPU seconds of a call, over as many calls as last `least` seconds."""
    call()
    start = time.process_time()
    call()
    loops = range(max(1, round(least / max(time.process_time() - start, 1e-6))))

    def timed() -> float:
        start = time.process_time()
        for _ in loops:
            call()
        return (time.process_time() - start) / len(loops)

    return timed


def ratio(what: str, times: Mapping[str, np.ndarray], bound: float | None) -> Line:
    """Ours over theirs, round by round; theirs again over theirs."""
    ours, theirs, again = times[OURS], times[THEIRS], times[AGAIN]
    context = f"{len(ours)} pairs, {readable(ours)} against {readable(theirs)}"
    return Line(what, "x", tuple(ours / theirs), tuple(again / theirs), bound, context)


def difference(what: str, times: Mapping[str, np.ndarray], bound: float) -> Line:
    """Ours less theirs in nanoseconds, round by round; theirs again less theirs."""
    ours, theirs, again = (1e9 * times[name] for name in (OURS, THEIRS, AGAIN))
    context = f"{len(ours)} pairs, {readable(times[OURS])} against {readable(times[THEIRS])}"
    return Line(what, "ns", tuple(ours - theirs), tuple(again - theirs), bound, context)


def readable(seconds: np.ndarray) -> str:
    """The median, in a unit in which it can be read."""
    median = float(np.median(seconds))
    unit, name = next(
        (pair for pair in ((1, "s"), (1e-3, "ms"), (1e-6, "us")) if median >= pair[0]),
        (1e-9, "ns"),
    )
    return f"{median / unit:.3g} {name}"
