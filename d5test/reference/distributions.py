"""Distributions: what is known of a number that is drawn by chance, and how one is drawn."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from d5test.case import Array


@dataclass(frozen=True)
class Uniform:
    """Each number from `low` to `high` is as likely as any other."""

    low: float
    high: float

    @property
    def magnitude(self) -> float:
        """The largest number on the way to a sample, to which roundings are relative."""
        return max(abs(self.low), abs(self.high))

    @property
    def support(self) -> tuple[float, float]:
        """Between which numbers a sample lies."""
        return self.low, self.high

    def cdf(self, y: Array) -> Array:
        """The probability that a sample is at most y."""
        clipped: Array = np.clip((y - self.low) / (self.high - self.low), 0, 1)
        return clipped

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Samples in float64."""
        return self.low + (self.high - self.low) * generator.random(shape)


@dataclass(frozen=True)
class Normal:
    """The normal distribution of this mean, with the standard deviation `scale`."""

    mean: float
    scale: float

    @property
    def magnitude(self) -> float:
        """See `Uniform`."""
        return max(abs(self.mean), self.scale)

    @property
    def support(self) -> tuple[float, float]:
        """See `Uniform`."""
        return -np.inf, np.inf

    def cdf(self, y: Array) -> Array:
        """See `Uniform`."""
        probabilities: Array = ndtr((y - self.mean) / self.scale)
        return probabilities

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """See `Uniform`."""
        return self.mean + self.scale * generator.standard_normal(shape)


@dataclass(frozen=True)
class Categorical:
    """One of the classes 0, 1, ...: the last axis of `probabilities`.

    Its other axes broadcast to the samples' shape. `condition` says by how many roundings of the
    inputs' dtype a probability may be off that is computed in it.
    """

    probabilities: Array
    condition: float = 1.0

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """See `Uniform`; whole numbers. The last class that is possible has what is left."""
        ends = np.cumsum(self.probabilities, -1)
        ends /= ends[..., -1:]
        drawn: Array = (generator.random(shape)[..., None] >= ends[..., :-1]).sum(-1)
        return drawn
