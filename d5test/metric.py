"""What is measured: a quantity with its unit, and the values that it had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr


@dataclass(frozen=True)
class Metric:
    """A quantity. `better` is `lower` or `higher`; `gate` is `exact`, `noise` or `never`."""

    name: str
    unit: str
    better: str = "lower"
    gate: str = "noise"


TIME = Metric("time", "s")
RATIO = Metric("error / bar", "1", gate="exact")
MEMORY = Metric("peak memory", "byte", gate="exact")
FLOPS = Metric("floating-point operations per second", "1/s", better="higher")
BANDWIDTH = Metric("bytes per second", "byte/s", better="higher")


@dataclass(frozen=True)
class Sample:
    """Measured values of a metric, in the order of measurement."""

    metric: Metric
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the values."""
        return float(np.median(self.values))

    def median_interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """A nonparametric confidence interval of the median, from order statistics.

        Hoefler and Belli, Scientific Benchmarking of Parallel Computing Systems (SC'15), section
        3.1.3: no distribution is assumed. `None` if there are too few values for the confidence.
        """
        return median_interval(self.values, confidence)


def median_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Order statistics between which the median lies with at least this confidence."""
    ordered, n = sorted(values), len(values)
    # the k-th smallest exceeds the median with probability P(B(n, 1/2) < k)
    k = int(np.count_nonzero(2 * bdtr(np.arange(n), n, 0.5) <= 1 - confidence))
    return (float(ordered[k - 1]), float(ordered[n - k])) if k > 0 else None
