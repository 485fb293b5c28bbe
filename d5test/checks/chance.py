"""What is so unlikely of a sample that it was not drawn from its distribution.

A case of an honest generator is accused once in 1 / `ODDS` times at most. The odds are shared by
the questions that are asked, and each answer has a bound that holds for any number of elements:

    marginal, continuous  Dvoretzky, Kiefer and Wolfowitz's inequality with Massart's constant
                          (Ann. Probab. 18, 1990): P(sup |F_n - F| > t) <= 2 exp(-2 n t^2)
    marginal, discrete    the binomial distribution, of groups of elements by their probabilities
                          and by their place. Where these differ in a group, its count has no
                          heavier tails than the binomial of their mean beyond one from it
                          (Hoeffding, Ann. Math. Statist. 27, 1956)
    neighbours            the sum of z[i] z[i - lag], with z in an interval of length 1 about its
                          mean: Azuma and Hoeffding's inequality, P(|S| > t) <= 2 exp(-2 t^2 / n)
    repeats               the union bound over all pairs of runs of as many elements

Roundings are granted. A sample y may be rounded on the way, by a few units in the last place, and
what it is made of, uniform numbers, may have as few bits as its dtype: probabilities then are off
by a unit roundoff.
"""

from math import ceil, inf, log, log2, sqrt

import numpy as np
from scipy.special import bdtrc

from d5test.case import Array
from d5test.reference.distributions import Categorical, Normal, Uniform

Continuous = Uniform | Normal
Distribution = Continuous | Categorical

ODDS = 1e-9
"""The odds at which an honest generator is accused in a case."""
SHARES = 4
"""Parts of the odds: of the marginals, of neighbours, of repeats; and of equal calls."""
GROUPS = 16
"""Groups of elements, by their probabilities, and again by their place, beside all of them."""
PLAIN = 0.9
"""An element that has a value with a larger probability says too little about repeats."""
ROUNDINGS = 2
"""Of the scaled number, and of its sum with the mean or the lower end."""


def wrong(law: Distribution, y: Array, eps: float, odds: float = ODDS) -> str:
    """What is wrong with a sample; empty: nothing.

    `eps` is the distance from 1 to the next number of the coarsest dtype on the way to it.
    """
    y, share = np.asarray(y, np.float64), odds / SHARES
    if y.size == 0:
        return ""
    questions = (_outside, _marginal, _neighbours, _repeats)
    return next(filter(None, (ask(law, y, eps, share) for ask in questions)), "")


def chance_of(law: Distribution, y: Array, eps: float) -> float:
    """The logarithm of a bound on the probability that another sample is equal to this one."""
    with np.errstate(divide="ignore"):
        return float(np.log(_likely(law, np.asarray(y, np.float64), eps)).sum())


def _ends(law: Continuous, y: Array, eps: float) -> tuple[Array, Array]:
    """The cumulative probabilities between which that of a rounded sample is."""
    step = ROUNDINGS * eps * np.maximum(np.abs(y), law.magnitude)
    return (
        np.clip(law.cdf(y - step) - eps, 0, 1),
        np.clip(law.cdf(y + step) + eps, 0, 1),
    )


def _spread(law: Categorical, y: Array) -> Array:
    """The probabilities of each element, (n, classes)."""
    p = law.probabilities
    return np.broadcast_to(p, (*y.shape, p.shape[-1])).reshape(y.size, -1)


def _likely(law: Distribution, y: Array, eps: float) -> Array:
    """The probability of each element, or of what rounds to it, at most."""
    if isinstance(law, Categorical):
        p = np.take_along_axis(_spread(law, y), y.reshape(-1, 1).astype(np.int64), 1)[:, 0]
        return np.where((p > 0) & (p < 1), np.minimum(p + law.condition * eps, 1), p)
    low, high = _ends(law, y.ravel(), eps)
    return high - low


def _outside(law: Distribution, y: Array, eps: float, odds: float) -> str:
    """Whether there are values that cannot be, whatever the odds."""
    if isinstance(law, Categorical):
        classes = law.probabilities.shape[-1]
        bad = ~np.isin(y, np.arange(classes))
        if not bad.any():
            bad = (_likely(law, y, 0) == 0).reshape(y.shape)
    else:
        low, high = law.support
        step = ROUNDINGS * eps * law.magnitude
        bad = ~np.isfinite(y) | (y < low - step) | (y > high + step)
    count = np.count_nonzero(bad)
    return f"{count} of {y.size} elements cannot be, the first {y[bad][0]:.9g}" if count else ""


def _marginal(law: Distribution, y: Array, eps: float, odds: float) -> str:
    """Whether the values are as often as they should be."""
    if isinstance(law, Categorical):
        return _counts(law, y, eps, odds)
    y = np.sort(y, axis=None)
    n, (low, high) = y.size, _ends(law, y, eps)
    rank = np.arange(n)
    distance = float(max(((rank + 1) / n - high).max(), (low - rank / n).max()))
    most = sqrt(log(2 / odds) / (2 * n))
    if distance <= most:
        return ""
    return (
        f"the distribution of {n} elements is {distance:.3g} off that of {law}, where more than "
        f"{most:.3g} has odds of {odds:.1g}"
    )


def _counts(law: Categorical, y: Array, eps: float, odds: float) -> str:
    """Whether each class is drawn as often as it should be, in each group of elements."""
    p, y = _spread(law, y), y.ravel()
    n, classes = p.shape
    share, slack = odds / (2 * (2 * GROUPS + 1) * classes), law.condition * eps
    parts = [part for part in np.array_split(np.arange(n), min(n, GROUPS)) if part.size]
    for k in range(classes):
        order = np.argsort(p[:, k], kind="stable")
        for group in (order, *parts, *(order[part] for part in parts)):
            expected, size = p[group, k], group.size
            count = int(np.count_nonzero(y[group] == k))
            free = (expected > 0) & (expected < 1)
            least = float(np.where(free, np.maximum(expected - slack, 0), expected).mean())
            most = float(np.where(free, np.minimum(expected + slack, 1), expected).mean())
            chance = min(
                _tail(size - count, size, 1 - least), _tail(count, size, most)
            )  # as few, and as many
            if chance < share:
                return (
                    f"{count} of {size} elements are {k}, where {size * least:.6g} to "
                    f"{size * most:.6g} are expected: the odds are {chance:.1g}"
                )
    return ""


def _tail(count: int, size: int, p: float) -> float:
    """The probability at most of so many or more, where `p` is the mean probability."""
    return float(bdtrc(count - 1, size, min(p, 1.0))) if count >= size * p + 1 else 1.0


def _centred(law: Distribution, y: Array, eps: float) -> tuple[Array, float]:
    """Elements about their means in intervals of length 1, and how far off a mean may be."""
    if isinstance(law, Categorical):
        p = _spread(law, y)
        values = np.arange(p.shape[1])
        slack = min(1.0, p.shape[1] * law.condition * eps)
        return (y.ravel() - p @ values) / max(values[-1], 1), slack
    low, high = _ends(law, y.ravel(), eps)
    return (low + high) / 2 - 0.5, float((high - low).max())


def _lags(shape: tuple[int, ...]) -> list[int]:
    """Distances at which elements are compared: along axes, powers of two, and half of all."""
    size = int(np.prod(shape))
    along = {int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))}
    others = {*(2**k for k in range(24)), size // 2}
    return sorted(lag for lag in along | others if 0 < 2 * lag <= size)


def _neighbours(law: Distribution, y: Array, eps: float, odds: float) -> str:
    """Whether elements go with those at some distance."""
    z, bias = _centred(law, y, eps)
    lags = _lags(y.shape)
    for lag in lags:
        n = z.size - lag
        together = float(z[lag:] @ z[:-lag])
        most = sqrt(n / 2 * log(2 * len(lags) / odds)) + n * bias
        if abs(together) > most:
            return (
                f"elements go with those {lag} before: the sum of products of {n} is "
                f"{together:.4g}, where more than {most:.4g} has odds of {odds / len(lags):.1g}"
            )
    return ""


def _repeats(law: Distribution, y: Array, eps: float, odds: float) -> str:
    """Whether a run of elements comes twice.

    A run is as long as it must be for the odds. Runs are told apart by the ranks of their halves.
    """
    chance = (
        _spread(law, y).max(1)
        if isinstance(law, Categorical)
        else np.full(y.size, _likely(law, y, eps).max())
    )
    telling = chance <= PLAIN
    y, n = y.ravel()[telling], int(np.count_nonzero(telling))
    largest = float(chance[telling].max(initial=0))
    length = _run(n, largest, odds)
    if 2 * length > n:
        return ""
    codes = np.unique(y, return_inverse=True)[1].astype(np.int64)
    for half in (2**k for k in range(round(log2(length)))):
        codes = np.unique(codes[:-half] * n + codes[half:], return_inverse=True)[1]
    repeated = codes.size - int(codes.max()) - 1
    return f"{repeated} runs of {length} elements come again" if repeated else ""


def _run(n: int, chance: float, odds: float) -> float:
    """The length of a run that no honest generator repeats in n elements: a power of two."""
    if n < 2 or chance >= 1:
        return inf
    needed = log(n * n / 2 / odds) / -log(chance)
    return float(2 ** ceil(log2(max(needed, 1))))
