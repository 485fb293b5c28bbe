"""The machine, from times that were measured; and how far off its predictions are.

The model is LogGP's without a gap: latency, overhead, beta (seconds a byte) and gamma (seconds of
a byte's addition), the last two by the size of the message: a library takes another protocol at
some size, and caches end at others. They bend at the sizes that were measured, but for the
smallest and the largest. The time of a schedule is the longest of many paths, each a sum of
counts times these: so at the fit it is linear, and the counts are its derivatives. Least squares
of errors relative to what is predicted, no parameter below zero: a time that is off by a tenth
counts the same at 8 bytes as at 16 MiB. (Relative to what was measured, a noisy time would count
for less if it is long, and the fit would be too low by twice the variance.)

Requirements: the confidence is that of the residuals, which hold what the model leaves out as well
as noise; what the times do not determine is said. An exchange is as long as the longer of 2 o and
o + L: so fits start from a long overhead and from a long latency, and where both explain the
times, the intervals hold both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import stdtrit

from d5test.compare.entry import Entry
from d5test.metric import RESIDENT, TIME, measured
from d5test.simulation.gradients import ITEMSIZE
from d5test.simulation.machine import Bend, Machine
from d5test.simulation.rounds import ROUNDS, seconds

NAMES = ("alpha", "overhead", "beta", "gamma")
"""Alpha is the overhead and the latency: what an empty message takes. Beta and gamma are one for
all sizes, or one for each part of them, "beta to 16 KiB", "beta beyond"."""
CONFIDENCE = 0.95
PASSES = 50
"""Of linear fits, each at the result of the last."""
HALVINGS = 12
"""Of a step at most: a step of 1e-4 of the way that is no better ends the descent."""
SETTLED = 1e-9
SEPARATE = 1e-6
"""A column of counts that is, up to this part of it, made of the others says nothing new."""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Time:
    """A measured allreduce of float32 in seconds; `nbytes` of a contribution.

    own  seconds of these that it takes besides messages and sums, measured by themselves
    """

    algorithm: str
    ranks: int
    nbytes: int
    seconds: float
    own: float = 0.0


@dataclass(frozen=True)
class Fit:
    """A machine, and the standard errors of what it is.

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
        machine = self.machine
        parts: list[Machine | Bend] = [machine, *machine.bends]
        betas, gammas = [part.per_byte for part in parts], [part.addition for part in parts]
        names = _names([bend.nbytes for bend in machine.bends])
        return dict(zip(names, [machine.alpha, machine.overhead, *betas, *gammas], strict=True))

    def half(self, name: str, confidence: float = CONFIDENCE) -> float:
        """Half of the interval of Student's distribution."""
        return self.errors[name] * _quantile(self.freedom, confidence)


def _quantile(freedom: int, confidence: float) -> float:
    """Of Student's distribution, on both sides."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def _names(bends: Sequence[int]) -> list[str]:
    """Of the parameters of a machine with such bends."""
    parts = [f" to {measured(nbytes, RESIDENT)}" for nbytes in bends]
    parts.append(" beyond" if bends else "")
    return [*NAMES[:2], *(name + part for name in NAMES[2:] for part in parts)]


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
            own = entry.detail.positive("communication.own_seconds") or 0.0
            times.append(Time(str(algorithm), int(ranks), int(nbytes), fastest, own))
    return times


def predict(times: Sequence[Time], machine: Machine) -> Array:
    """Seconds: what each takes by itself, and the model's messages and sums."""
    result = np.array([t.own for t in times])
    for key in {(t.algorithm, t.ranks) for t in times}:
        at = [i for i, t in enumerate(times) if (t.algorithm, t.ranks) == key]
        items = [times[i].nbytes // ITEMSIZE for i in at]
        result[at] += seconds(*key, items, machine, ITEMSIZE)
    return result


def _machine(theta: Array, bends: Sequence[int]) -> Machine:
    """From latency, overhead, the betas and the gammas."""
    latency, overhead, *slopes = map(float, theta)
    betas, gammas = slopes[: len(bends) + 1], slopes[len(bends) + 1 :]
    parts = map(Bend, bends, betas[1:], gammas[1:])
    return Machine(latency, betas[0], gammas[0], overhead, bends=tuple(parts))


def _counts(times: Sequence[Time], theta: Array, bends: Sequence[int]) -> Array:
    """Of latency, overhead, betas and gammas on the longest path: (times, parameters)."""
    base = predict(times, _machine(theta, bends))
    columns = []
    for i, value in enumerate(theta):
        step = np.zeros(len(theta))
        step[i] = 1e-6 * value
        columns.append((predict(times, _machine(theta + step, bends)) - base) / step[i])
    return np.stack(columns, axis=1)


def bends_of(times: Sequence[Time]) -> tuple[int, ...]:
    """The sizes between the smallest and the largest; none where the times are too few for it."""
    sizes = sorted({t.nbytes for t in times})[1:-1]
    return tuple(sizes) if len(times) > len(_names(sizes)) else ()


def fit(times: Sequence[Time], bends: Sequence[int] = ()) -> Fit:
    """By least squares; beta and gamma are others from each of `bends` bytes on. Raises `TooFew`.

    There are more times than parameters, as `bends_of` sees to.
    """
    if len(times) <= len(NAMES):
        raise TooFew(
            f"{len(times)} times of allreduces by our schedules on 2 ranks and more: "
            f"{', '.join(NAMES)} need {len(NAMES) + 1} and more"
        )
    taken = np.array([t.seconds for t in times])
    largest = max(times, key=lambda t: t.nbytes)
    per_byte = largest.seconds / largest.nbytes
    short, long = taken.min(), taken.min() / 4
    slopes = [per_byte] * (2 * len(bends) + 2)
    starts = [np.array([*pair, *slopes]) for pair in ((short, long), (long, short))]
    floor = 1e-6 * starts[0]
    descents = (_descent(times, start, floor, bends) for start in starts)
    (least, theta), *rivals = sorted(descents, key=lambda end: end[0])
    machine, names = _machine(theta, bends), _names(bends)
    expected = predict(times, machine)
    counts = _counts(times, np.maximum(theta, floor), bends) / expected[:, None]
    off = taken / expected - 1
    freedom = len(times) - len(names)
    residual = float(np.sqrt(off @ off / freedom))
    # with alpha in the place of the latency, an overhead takes the place of as much latency
    counts[:, 1] -= counts[:, 0]
    new = _new(counts)
    errors = {
        name: residual / float(length) if length > 0 else np.inf
        for name, length in zip(names, new, strict=True)
    }
    fitted = Fit(machine, errors, {}, residual, freedom)
    sure = _quantile(freedom, CONFIDENCE)
    for deviance, rival in rivals:
        if deviance - least <= (residual * sure) ** 2:
            other = replace(fitted, machine=_machine(rival, bends)).values
            for name, value in fitted.values.items():
                errors[name] = max(errors[name], abs(other[name] - value) / sure)
    determined = {name: fitted.half(name) < value for name, value in fitted.values.items()}
    return replace(fitted, determined=determined)


def _descent(
    times: Sequence[Time], theta: Array, floor: Array, bends: Sequence[int]
) -> tuple[float, Array]:
    """The least deviance down from `theta`, and where it is.

    Each step goes towards the linear fit at the result of the last, half as far as long as other
    paths become the longest there and the deviance would not fall.
    """
    taken, own = (np.array([getattr(t, name) for t in times]) for name in ("seconds", "own"))

    def deviance(at: Array) -> float:
        return _deviance(taken / predict(times, _machine(np.maximum(at, floor), bends)))

    least = deviance(theta)
    for _ in range(PASSES):
        at = np.maximum(theta, floor)
        expected = predict(times, _machine(at, bends))
        columns = _counts(times, at, bends) / expected[:, None]
        lengths = _lengths(columns)
        linear = nnls(columns / lengths, (taken - own) / expected)[0] / lengths
        if np.all(np.abs(linear - theta) <= SETTLED * np.maximum(theta, floor)):
            return least, linear
        for part in 0.5 ** np.arange(HALVINGS):
            there = theta + part * (linear - theta)
            if (now := deviance(there)) < least:
                theta, least = there, now
                break
        else:
            break
    return least, theta


def _deviance(quotients: Array) -> float:
    """What the fits lessen, of measured over predicted: that of errors in proportion to the time.

    McCullagh and Nelder, Generalized Linear Models (1989), table 2.1, of the gamma distribution.
    """
    return float(2 * np.sum(quotients - 1 - np.log(quotients)))


def _lengths(columns: Array) -> Array:
    """Of each column; of one of zeros, 1."""
    lengths = np.linalg.norm(columns, axis=0)
    return np.where(lengths > 0, lengths, 1.0)


def _new(columns: Array) -> Array:
    """Of each column, the length of what no sum of the others is; 0 up to `SEPARATE` of it.

    The standard error of a coefficient is that of the residuals over this length.
    """
    whole = columns / _lengths(columns)
    lengths = []
    for i in range(columns.shape[1]):
        column, others = whole[:, i], np.delete(whole, i, axis=1)
        left = column - others @ np.linalg.lstsq(others, column, rcond=None)[0]
        length = float(np.linalg.norm(left))
        lengths.append(length * _lengths(columns)[i] if length > SEPARATE else 0.0)
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
        known = seen if held_out else times
        machine = fit(known, bends_of(known)).machine
        for time, predicted in zip(asked, predict(asked, machine), strict=True):
            yield Prediction(time, float(predicted), held_out)


def as_json(fit: Fit, predicted: Sequence[Prediction]) -> dict[str, Any]:
    """The fit and its predictions, in seconds and bytes."""
    return {
        "residual": fit.residual,
        "parameters": {
            name: {
                "value": value,
                "half_interval_95": fit.half(name) if np.isfinite(fit.errors[name]) else None,
                "determined": bool(fit.determined[name]),
            }
            for name, value in fit.values.items()
        },
        "predictions": [
            {**vars(p.time), "predicted": p.predicted, "off": p.off, "held_out": p.held_out}
            for p in predicted
        ],
    }
