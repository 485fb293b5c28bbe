"""Noise between runs, as of machines that were met and of worse ones: logarithms of times.

Each machine is a function of a generator, suites s, benchmarks b and runs r, in the order in which
they were made, and returns an array (s, b, r) whose unit is the typical noise of a run.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Machine = Callable[[np.random.Generator, int, int, int], NDArray[np.float64]]
MACHINES: dict[str, Machine] = {}


def machine(make: Machine) -> Machine:
    MACHINES[make.__name__] = make
    return make


@machine
def normal(draw, s, b, r):
    return draw.standard_normal((s, b, r))


@machine
def unequal(draw, s, b, r):
    """Some benchmarks are several times as noisy as others."""
    return np.exp(0.5 * draw.standard_normal((s, b, 1))) * draw.standard_normal((s, b, r))


@machine
def heavy(draw, s, b, r):
    """Tails without a variance (Student's t, 2 degrees of freedom)."""
    return draw.standard_t(2, (s, b, r))


@machine
def one_sided(draw, s, b, r):
    """Disturbances only make it slower, some by much (Pareto, exponent 2)."""
    return draw.pareto(2, (s, b, r))


@machine
def outliers(draw, s, b, r):
    """Each tenth run of a benchmark was disturbed."""
    hit = draw.random((s, b, r)) < 0.1
    return 0.5 * draw.standard_normal((s, b, r)) + hit * draw.exponential(10, (s, b, r))


@machine
def shared(draw, s, b, r):
    """What differs is the run: all of its benchmarks together."""
    return 0.5 * draw.standard_normal((s, b, r)) + 2 * draw.standard_normal((s, 1, r))


@machine
def episodes(draw, s, b, r):
    """Load that comes and goes, over several runs, and hits each benchmark in its own way."""
    loaded = np.zeros((s, 1, r))
    now = draw.random(s) < 0.3
    for k in range(r):
        now = np.where(draw.random(s) < 0.5, now, draw.random(s) < 0.3)
        loaded[:, 0, k] = now
    hit = draw.exponential(5, (s, b, 1)) * draw.random((s, b, r))
    return 0.5 * draw.standard_normal((s, b, r)) + loaded * hit


@machine
def walking(draw, s, b, r):
    """A drift of the whole machine without a mean to return to."""
    steps = draw.standard_normal((s, 1, r))
    return 0.3 * draw.standard_normal((s, b, r)) + np.cumsum(steps, axis=-1)


@machine
def warming(draw, s, b, r):
    """A drift of the whole machine in one direction."""
    return 0.3 * draw.standard_normal((s, b, r)) + draw.standard_normal((s, 1, 1)) * np.arange(r)


@machine
def layouts(draw, s, b, r):
    """One benchmark has two speeds, by the memory layout of its process."""
    noise = draw.standard_normal((s, b, r))
    noise[:, 0] += 4 * (draw.random((s, r)) < 0.5)
    return noise


@machine
def stepping(draw, s, b, r):
    """Most benchmarks repeat to the digit, and now and then a run of theirs is a step apart."""
    noise = draw.standard_normal((s, b, r))
    steps = 4.0 * (draw.random((s, b, r)) < 0.05)
    return np.where(draw.random((s, b, 1)) < 0.7, steps, noise)
