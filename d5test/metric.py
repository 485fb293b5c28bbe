"""What is measured: a quantity with its unit, and the values that it had."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr

DIRECTIONS = ("lower", "higher")
GATES = ("exact", "noise", "never")


@dataclass(frozen=True)
class Metric:
    """A quantity.

    better      `lower` or `higher`
    gate        how two runs are compared: `exact`, what repeats to the digit; `noise`, positive
                numbers that are compared beyond the noise between runs; `never`
    tolerance   of `exact` alone: a difference up to this is one of representation
    """

    name: str
    unit: str
    better: str = "lower"
    gate: str = "noise"
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.better not in DIRECTIONS:
            raise ValueError(f"{self.name}: better is {self.better!r}, not one of {DIRECTIONS}")
        if self.gate not in GATES:
            raise ValueError(f"{self.name}: gate is {self.gate!r}, not one of {GATES}")


TIME = Metric("time", "s")
RATIO = Metric("error / bar", "1", gate="exact")
RIGHT = Metric("right", "1", better="higher", gate="exact")
SHARE = Metric("share judged", "1", better="higher", gate="exact")
ARITHMETIC = Metric("arithmetic class", "F < P < S", gate="exact")
MEMORY = Metric("device memory", "byte", gate="exact")
RESIDENT = Metric("resident memory", "byte")
MESSAGES = Metric("messages sent", "1", gate="exact")
TRAFFIC = Metric("bytes sent", "byte", gate="exact")
CLASSES = ("F", "P", "S")
"""Of low-precision arithmetic, tightest first: the values 0, 1, 2 of that metric."""
BANDWIDTH = Metric("bytes per second", "byte/s", better="higher", gate="never")


STEPS = {
    "s": ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (0, "ns")),
    "byte": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (0, "B")),
}
SIZES = {"ns": 1e-9, "B": 1}
"""What the last of the steps counts in."""


def measured(value: float, metric: Metric) -> str:
    """A value with its unit, as every output and every page says it."""
    if metric == ARITHMETIC:
        return CLASSES[int(value)]
    if metric == RIGHT:
        return "right" if value else "wrong"
    if metric.unit not in STEPS:
        return f"{value:.4g}" if metric.unit == "1" else f"{value:.4g} {metric.unit}"
    steps = STEPS[metric.unit]
    least, unit = next((step for step in steps if abs(value) >= step[0]), steps[0])  # not NaN's
    return f"{value / (least or SIZES[unit]):.4g} {unit}"


@dataclass(frozen=True)
class Sample:
    """Measured values of a metric, in the order of measurement."""

    metric: Metric
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the values."""
        return float(np.median(self.values))

    def to_json(self) -> dict[str, Any]:
        """The metric with its rules, and the values: an entry of `extra_info["metrics"]`."""
        return {**asdict(self.metric), "values": list(self.values)}


def allreduce_bandwidths(nbytes: float, ranks: int, seconds: float) -> tuple[float, float]:
    """Algorithm and bus bandwidth in byte/s, as NCCL's tests define them.

    Bytes of a rank's contribution a second; and 2 (p - 1) / p times that, what each of p ranks
    has to send at the least: it can be compared with a link's, whatever the number of ranks.

    >>> allreduce_bandwidths(1e6, 4, 0.5)
    (2000000.0, 3000000.0)
    """
    algorithm = nbytes / seconds
    return algorithm, algorithm * 2 * (ranks - 1) / ranks


def median_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """A nonparametric confidence interval of the median, from order statistics.

    Hoefler and Belli, Scientific Benchmarking of Parallel Computing Systems (SC'15), section
    3.1.3: no distribution is assumed. `None` if there are too few values for the confidence.
    """
    ordered, n = sorted(values), len(values)
    # the k-th smallest exceeds the median with probability P(B(n, 1/2) < k)
    k = int(np.count_nonzero(2 * bdtr(np.arange(n), n, 0.5) <= 1 - confidence))
    return (float(ordered[k - 1]), float(ordered[n - k])) if k > 0 else None
