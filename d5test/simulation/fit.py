"""The machine, from times that were measured; and how far off its predictions are.

The model is Hockney's: alpha, beta (seconds a byte) and gamma (seconds of a byte's addition). The
time of a schedule is the longest of many paths, each a sum of counts times alpha, beta and gamma:
so at the fit it is linear, and the counts are its derivatives. Least squares of errors relative
to what is predicted, none of the three below zero: a time that is off by a tenth counts the same
at 8 bytes as at 16 MiB. (Relative to what was measured, a noisy time would count for less if it
is long, and the fit would be too low by twice the variance.)

Requirements: the confidence is that of the residuals, which hold what the model leaves out as well
as noise; what the times do not determine is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import stdtrit

from d5test.compare.entry import Entry
from d5test.metric import TIME
from d5test.simulation.gradients import ITEMSIZE
from d5test.simulation.machine import Machine
from d5test.simulation.rounds import ROUNDS, seconds

NAMES = ("alpha", "beta", "gamma")
CONFIDENCE = 0.95
PASSES = 50
"""Of linear fits, each at the result of the last; the paths are mostly found in three."""
SETTLED = 1e-9
SEPARATE = 1e-6
"""A column of counts that is, up to this part of it, made of the others says nothing new."""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Time:
    """A measured allreduce of float32 in seconds; `nbytes` of a contribution."""

    algorithm: str
    ranks: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """A machine, and for alpha, beta and gamma the standard error and the half of the interval.

    determined  whether the times tell it: its interval does not reach zero, and it is not the
                others in another guise
    residual    the standard deviation of measured over predicted
    freedom     degrees of freedom of that
    """

    machine: Machine
    errors: Mapping[str, float]
    determined: Mapping[str, bool]
    residual: float
    freedom: int

    @property
    def values(self) -> dict[str, float]:
        """By name, in seconds, and seconds a byte."""
        m = self.machine
        return dict(zip(NAMES, (m.alpha, m.per_byte, m.addition), strict=True))

    def half(self, name: str, confidence: float = CONFIDENCE) -> float:
        """Half of the interval of Student's distribution."""
        return self.errors[name] * float(stdtrit(self.freedom, (1 + confidence) / 2))


class TooFew(ValueError):
    """Times from which nothing can be fitted. Its text is one line."""


def times_of(entries: Sequence[Entry]) -> list[Time]:
    """The fastest round of each allreduce by one of our schedules on two ranks and more."""
    times = []
    for entry in entries:
        algorithm = entry.detail.about.get("communication.algorithm")
        ranks = entry.detail.positive("communication.ranks")
        nbytes = entry.detail.positive("communication.contribution_bytes")
        if algorithm in ROUNDS and ranks and ranks > 1 and nbytes and entry.right:
            fastest = min(entry.samples[TIME.name].values)
            times.append(Time(str(algorithm), int(ranks), int(nbytes), fastest))
    return times


def predict(times: Sequence[Time], machine: Machine) -> Array:
    """Seconds, as the model has them."""
    result = np.zeros(len(times))
    for key in {(t.algorithm, t.ranks) for t in times}:
        at = [i for i, t in enumerate(times) if (t.algorithm, t.ranks) == key]
        items = [times[i].nbytes // ITEMSIZE for i in at]
        result[at] = seconds(*key, items, machine, ITEMSIZE)
    return result


def _counts(times: Sequence[Time], theta: Array) -> Array:
    """Of alpha, beta and gamma on the longest path: (times, 3)."""
    base = predict(times, Machine(*theta))
    columns = []
    for i, value in enumerate(theta):
        step = np.zeros(3)
        step[i] = 1e-6 * value
        columns.append((predict(times, Machine(*(theta + step))) - base) / step[i])
    return np.stack(columns, axis=1)


def fit(times: Sequence[Time]) -> Fit:
    """By least squares. Raises `TooFew`."""
    if len(times) <= len(NAMES):
        raise TooFew(
            f"{len(times)} times of allreduces by our schedules on 2 ranks and more: alpha, beta "
            f"and gamma need {len(NAMES) + 1} and more"
        )
    measured = np.array([t.seconds for t in times])
    largest = max(times, key=lambda t: t.nbytes)
    floor = np.array([1e-6 * measured.min(), *[1e-6 * largest.seconds / largest.nbytes] * 2])
    theta = np.array([measured.min(), *[largest.seconds / largest.nbytes] * 2])
    for _ in range(PASSES):
        at = np.maximum(theta, floor)
        expected = predict(times, Machine(*at))
        design = _counts(times, at) / expected[:, None]
        scale = np.maximum(np.linalg.norm(design, axis=0), np.finfo(float).tiny)
        found = nnls(design / scale, measured / expected)[0] / scale
        settled = bool(np.all(np.abs(found - theta) <= SETTLED * np.maximum(theta, floor)))
        theta = found
        if settled:
            break
    machine = Machine(*map(float, theta))
    off = measured / predict(times, machine) - 1
    freedom = len(times) - len(NAMES)
    residual = float(np.sqrt(off @ off / freedom))
    new = _new(design / scale)
    half = stdtrit(freedom, (1 + CONFIDENCE) / 2)
    errors = {
        name: float(residual / (new[i] * scale[i])) if new[i] > SEPARATE else np.inf
        for i, name in enumerate(NAMES)
    }
    determined = {name: bool(half * errors[name] < theta[i]) for i, name in enumerate(NAMES)}
    return Fit(machine, errors, determined, residual, freedom)


def _new(design: Array) -> Array:
    """Of each column of length 1, the length of what no sum of the others is.

    The standard error of a coefficient is that of the residuals over this length.
    """
    lengths = []
    for i in range(design.shape[1]):
        column, others = design[:, i], np.delete(design, i, axis=1)
        left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
        lengths.append(float(np.linalg.norm(left)))
    return np.array(lengths)


@dataclass(frozen=True)
class Prediction:
    """A measured time beside what was predicted; by a fit that has not seen this size, or has."""

    time: Time
    predicted: float
    held_out: bool

    @property
    def off(self) -> float:
        """The relative error: 0.25 is a quarter too long."""
        return self.predicted / self.time.seconds - 1


def predictions(times: Sequence[Time]) -> Iterator[Prediction]:
    """Each size by a fit to the other sizes. Where these are too few, by the fit to all."""
    for nbytes in sorted({t.nbytes for t in times}):
        seen = [t for t in times if t.nbytes != nbytes]
        asked = [t for t in times if t.nbytes == nbytes]
        held_out = len(seen) > len(NAMES)
        machine = fit(seen if held_out else times).machine
        for time, predicted in zip(asked, predict(asked, machine), strict=True):
            yield Prediction(time, float(predicted), held_out)


def as_json(found: Fit, predicted: Sequence[Prediction]) -> dict[str, Any]:
    """The fit and its predictions, in seconds and bytes."""
    return {
        "residual": found.residual,
        "parameters": {
            name: {
                "value": value,
                "half_interval_95": found.half(name) if np.isfinite(found.errors[name]) else None,
                "determined": bool(found.determined[name]),
            }
            for name, value in found.values.items()
        },
        "predictions": [
            {**vars(p.time), "predicted": p.predicted, "off": p.off, "held_out": p.held_out}
            for p in predicted
        ],
    }
