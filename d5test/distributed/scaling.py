"""What a run writes of a step on so many ranks: its time, its traffic, and its base case.

As Hoefler and Belli ask for (Scientific Benchmarking of Parallel Computing Systems, SC'15): the
base case stands beside every speedup, with its absolute performance (rule 1); costs are summed up
before a ratio is made of them, and no ratios are averaged (rules 3 and 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from d5test.metric import TIME, Sample, measured
from d5test.training.samplers import Indices

SCHEMA = 1
KEY = "scaling"
"""Where an entry stands in pytest-benchmark's `extra_info`."""
MODES = ("strong", "weak")
JOINED, OWN = 64, 16
"""Samples of all ranks together in strong scaling, and of each rank in weak scaling."""


@dataclass(frozen=True)
class Scaling:
    """A step of a distributed optimizer on `ranks` ranks.

    samples     of all ranks together, in a step
    parameters  that are trained
    seconds     wall time of each step, by the slowest rank
    compute     of each rank: wall seconds a step in its own gradient, waiting for nobody
    messages    that each rank sent in a step
    bytes       likewise
    base        the `summary` of one rank; None where it was not measured in this run
    """

    optimizer: str
    mode: str
    ranks: int
    samples: int
    network: str
    parameters: int
    seconds: Sequence[float]
    compute: Sequence[float]
    messages: Sequence[int]
    bytes: Sequence[int]
    backend: Mapping[str, Any]
    communicator: str
    base: Mapping[str, Any] | None = None
    schema: int = SCHEMA

    @property
    def summary(self) -> dict[str, Any]:
        """Its performance: what stands as the base case beside other entries."""
        sample = Sample(TIME, tuple(self.seconds))
        return {
            "ranks": self.ranks,
            "samples": self.samples,
            "median": sample.median,
            "median_interval_95": sample.median_interval(),
            "samples_per_second": self.samples / sample.median,
        }

    @property
    def load_imbalance(self) -> float:
        """The longest of the ranks' own computations over their mean: 1 is balanced."""
        return float(np.max(self.compute) / np.mean(self.compute))

    @property
    def speedup(self) -> float | None:
        """Samples per second, over those of the base case: of weak scaling the scaled speedup."""
        if self.base is None:
            return None
        return float(self.summary["samples_per_second"] / self.base["samples_per_second"])

    def to_json(self) -> dict[str, Any]:
        """The entry."""
        return {
            **asdict(self),
            **self.summary,
            "load_imbalance": self.load_imbalance,
            "messages_sent": int(np.sum(self.messages)),
            "bytes_sent": int(np.sum(self.bytes)),
            "speedup": self.speedup,
        }

    def in_words(self) -> str:
        """One line: time, rate, the speedup with its base case, imbalance and traffic."""
        found = self.summary
        low, high = found["median_interval_95"] or (np.nan, np.nan)
        over = "no base case"
        if self.base is not None:
            rate = self.base["samples_per_second"]
            over = f"{self.speedup:5.2f} x {rate:.0f} sample/s of 1 rank"
        return (
            f"{measured(found['median'], TIME):>10}  "
            f"[{measured(low, TIME)}, {measured(high, TIME)}]  "
            f"{found['samples_per_second']:8.0f} sample/s  {over}  "
            f"imbalance {self.load_imbalance:.2f}  {np.sum(self.bytes)} bytes  "
            f"{self.optimizer} {self.mode}, ranks: {self.ranks}"
        )


def sizes(world: int) -> tuple[int, ...]:
    """The powers of two up to `world`, and `world`."""
    return tuple(sorted({1 << k for k in range(world.bit_length())} | {world}))


def minibatch(mode: str, rank: int, ranks: int, samples: int) -> Indices:
    """Which of the training samples a rank sees: the same in each step."""
    if mode == "strong":
        return np.array_split(np.arange(JOINED, dtype=np.int64) % samples, ranks)[rank]
    return (rank * OWN + np.arange(OWN, dtype=np.int64)) % samples
