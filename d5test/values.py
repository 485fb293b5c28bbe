"""Value regimes: what the numbers of a random input look like.

Each regime turns raw Philox words into float64 values (or integers, or booleans) of a shape; the
caller rounds them to the dtype. A regime sees the dtype only for its range.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Words = np.random.Philox
Shape = tuple[int, ...]
DType = np.dtype[Any]
Values = NDArray[Any]
COMMON = np.uint64(0x3A5C96E1D2B4780F)
"""The bits of which `akin` numbers share the leading ones: any number would do."""
finfo: Any = ml_dtypes.finfo  # which is not typed
iinfo: Any = ml_dtypes.iinfo


def unit(words: Words, shape: Shape) -> Values:
    """Uniform in (0, 1), both ends excluded: 52 bits of each word and a half."""
    raw = np.asarray(words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
    return np.asarray(((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def signs(words: Words, shape: Shape) -> Values:
    """-1 or 1, each half of the time."""
    return np.where(unit(words, shape) < 0.5, -1.0, 1.0)


def normal(words: Words, shape: Shape, dtype: DType) -> Values:
    """Standard normal, by the inverse of its distribution function."""
    return np.asarray(ndtri(unit(words, shape)))


def uniform(words: Words, shape: Shape, dtype: DType, low: float = -1, high: float = 1) -> Values:
    """Uniform between `low` and `high`."""
    return np.asarray(low + (high - low) * unit(words, shape))


def positive(words: Words, shape: Shape, dtype: DType) -> Values:
    """Between 1/4 and 4, uniform in the logarithm."""
    return np.asarray(np.exp2(4 * unit(words, shape) - 2))


def nonzero(words: Words, shape: Shape, dtype: DType) -> Values:
    """Of magnitude between 1/4 and 4, of either sign."""
    return positive(words, shape, dtype) * signs(words, shape)


def heavy(words: Words, shape: Shape, dtype: DType) -> Values:
    """Heavy-tailed: a few values carry most of the sum. Magnitudes from 2^-6 to 2^6."""
    return np.asarray(np.exp2(12 * unit(words, shape) - 6) * signs(words, shape))


def offset(words: Words, shape: Shape, dtype: DType, centre: float = 1000) -> Values:
    """Around a large mean, with a small variance: what cancels in a variance."""
    return centre + normal(words, shape, dtype)


def onehot(words: Words, shape: Shape, dtype: DType) -> Values:
    """Zeros, but for one element."""
    values = np.zeros(shape)
    if values.size:
        position = int(unit(words, ()) * values.size)
        values.flat[position] = 1 + unit(words, ())
    return values


def ties(words: Words, shape: Shape, dtype: DType) -> Values:
    """Whole numbers from -2 to 2: many are equal, many are zero."""
    return np.asarray(np.floor(5 * unit(words, shape)) - 2)


def crowded(words: Words, shape: Shape, dtype: DType, count: int = 64) -> Values:
    """From consecutive numbers, 1 and above: a lower precision does not tell them apart."""
    return np.asarray(1 + np.floor(count * unit(words, shape)) * float(finfo(dtype).eps))


def constant(words: Words, shape: Shape, dtype: DType, value: float = 1) -> Values:
    """One value everywhere."""
    return np.full(shape, value)


def often(words: Words, shape: Shape, dtype: DType, *values: float) -> Values:
    """Normal, but about half of the elements are one of these values."""
    place = np.floor(2 * len(values) * unit(words, shape)).astype(int)
    chosen = np.asarray(values)[np.minimum(place, len(values) - 1)]
    return np.where(place < len(values), chosen, normal(words, shape, dtype))


def equal(words: Words, shape: Shape, dtype: DType, *axes: int) -> Values:
    """Normal, and equal along these axes: rows without a variance, equal keys, equal scores."""
    along = {axis % len(shape) for axis in axes}
    sides = tuple(1 if axis in along else side for axis, side in enumerate(shape))
    return np.broadcast_to(normal(words, sides, dtype), shape)


def singular(words: Words, shape: Shape, dtype: DType) -> Values:
    """Normal matrices without an inverse: the last row is the first; of one row, zeros."""
    values = normal(words, shape, dtype)
    values[..., -1:, :] = values[..., :1, :] if shape[-2] > 1 else 0
    return values


def scaled(words: Words, shape: Shape, dtype: DType, exponent: int) -> Values:
    """Normal values times 2^exponent."""
    return np.ldexp(normal(words, shape, dtype), exponent)


def huge(words: Words, shape: Shape, dtype: DType) -> Values:
    """Near the largest magnitudes of the dtype: from a quarter to the largest number itself."""
    largest = float(finfo(dtype).max)
    return np.asarray(largest * np.exp2(-2 * unit(words, shape)) * signs(words, shape))


def far(words: Words, shape: Shape, dtype: DType, sign: float = -1) -> Values:
    """All of one sign, up to 2^40 or half of the range: beyond what a maximum may begin with.

    Kernels have -1e4, -1e8 or -1e9 for the smallest number.
    """
    most = min(2.0**40, float(finfo(dtype).max) / 2)
    return np.asarray(sign * most * np.exp2(-unit(words, shape)))


def vast(words: Words, shape: Shape, dtype: DType) -> Values:
    """Numbers whose squares leave the dtype's range, and whose quotients do not: 2 to 32 times the
    root of the largest number.
    """
    root = float(finfo(dtype).max) ** 0.5
    return np.asarray(root * np.exp2(1 + 4 * unit(words, shape)) * signs(words, shape))


def tiny(words: Words, shape: Shape, dtype: DType) -> Values:
    """From the smallest normal number to 16 times that."""
    smallest = float(finfo(dtype).smallest_normal)
    return np.asarray(smallest * np.exp2(4 * unit(words, shape)) * signs(words, shape))


def below(words: Words, shape: Shape, dtype: DType, limit: int) -> Values:
    """Whole numbers from 0 to limit - 1: indices and labels."""
    return np.asarray(np.floor(limit * unit(words, shape)), np.int64)


def naturals(words: Words, shape: Shape, dtype: DType, limit: int) -> Values:
    """Whole numbers from 1 to limit: sides."""
    return 1 + below(words, shape, dtype, limit)


def within(words: Words, shape: Shape, dtype: DType, limit: Any) -> Values:
    """Whole numbers from -limit to limit - 1: indices that may count from the end."""
    return np.asarray(np.floor(2 * limit * unit(words, shape)) - limit, np.int64)


def places(words: Words, shape: Shape, dtype: DType, *limits: int) -> Values:
    """Rows of indices, (..., k), from either end of axes of these k sizes."""
    return within(words, shape, dtype, np.asarray(limits))


def distinct(words: Words, shape: Shape, dtype: DType, *limits: int) -> Values:
    """As `places`, and no row names an element that another one names."""
    order = np.argsort(unit(words, (math.prod(limits),)))[: math.prod(shape[:-1])]
    rows = np.stack(np.unravel_index(order, limits), -1).reshape(shape)
    return np.where(unit(words, shape) < 0.5, rows, rows - limits)


def shuffled(words: Words, shape: Shape, dtype: DType, limit: int, axis: int) -> Values:
    """Indices from either end of an axis of `limit`, none of them twice along `axis`."""
    whole = (*shape[:axis], limit, *shape[axis + 1 :])
    order = np.argsort(unit(words, whole), axis).take(range(shape[axis]), axis)
    return np.where(unit(words, shape) < 0.5, order, order - limit)


def cycled(words: Words, shape: Shape, dtype: DType, *values: float) -> Values:
    """These values over and over: the labels of many samples."""
    return np.resize(np.asarray(values, dtype), shape)


def mask(words: Words, shape: Shape, dtype: DType, share: float = 0.5) -> Values:
    """Booleans, true with probability `share`."""
    return unit(words, shape) < share


def leading(words: Words, shape: Shape, dtype: DType) -> Values:
    """What hides a padded end: true for the first few, at least one, of each row, false behind.

    Of numbers normal values and minus infinity.
    """
    lengths = 1 + np.floor(shape[-1] * unit(words, shape[:-1]))
    shown = np.arange(shape[-1]) < lengths[..., np.newaxis]
    return shown if dtype == np.bool_ else np.where(shown, normal(words, shape, dtype), -np.inf)


def every(
    words: Words, shape: Shape, dtype: DType, first: int = 0, below: str = "random"
) -> Values:
    """Each value of the leading 16 bits in turn, from the pattern `first` on.

    Of a 16-bit dtype these are its numbers themselves. Of a wider one the bits `below` are
    `random`, or `zeros`: powers of two, zero and infinity are among these.
    """
    count = math.prod(shape)
    leading = np.arange(first, first + count, dtype=np.uint64)
    lower = words.random_raw(count) if below == "random" else np.zeros(count, np.uint64)
    return _led(leading, 16, lower, dtype).reshape(shape)


def octets(words: Words, shape: Shape, dtype: DType, first: int = 0, each: int = 1) -> Values:
    """Each value of the leading 8 bits `each` times in turn, from place `first` on.

    So both signs and the exponents, or groups of 2 (`bfloat16`, `float32`) or 16 of them
    (`float64`). The bits below are random.
    """
    places = first + np.arange(math.prod(shape))
    leading = (places // each % 256).astype(np.uint64)
    return _led(leading, 8, words.random_raw(places.size), dtype).reshape(shape)


def _led(leading: Values, width: int, lower: Values, dtype: DType) -> Values:
    """The numbers with these leading bits, so many of each, and these below."""
    rest = np.uint64(8 * dtype.itemsize - width)
    patterns = (leading << rest) | (lower & ((np.uint64(1) << rest) - np.uint64(1)))
    return patterns.astype(f"u{dtype.itemsize}").view(dtype)


def signalling(x: Values) -> NDArray[np.bool_]:
    """Where floating-point numbers are NaNs whose leading bit of the significand is 0."""
    bits, stored = 8 * x.dtype.itemsize, int(finfo(x.dtype).nmant)
    magnitude = x.view(f"u{x.dtype.itemsize}").astype(np.uint64) & np.uint64((1 << bits - 1) - 1)
    infinity = ((1 << bits - 1 - stored) - 1) << stored
    quiet = infinity | 1 << stored - 1
    return np.asarray((magnitude > np.uint64(infinity)) & (magnitude < np.uint64(quiet)))


def bits(words: Words, shape: Shape, dtype: DType) -> Values:
    """Integers of the dtype, each bit of which is set half of the time."""
    raw = words.random_raw(math.prod(shape))
    return np.asarray(raw, np.uint64).astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)


def unbounded(words: Words, shape: Shape, dtype: DType) -> Values:
    """Normal, but about half of the elements are infinite, of either sign, or NaN."""
    return often(words, shape, dtype, np.inf, -np.inf, np.nan)


def special(words: Words, shape: Shape, dtype: DType, each: int = 1) -> Values:
    """Each of `special_numbers` `each` times in turn."""
    values = special_numbers(dtype)
    return np.asarray(values[np.arange(math.prod(shape)) // each % values.size]).reshape(shape)


def special_numbers(dtype: DType) -> Values:
    """Of both signs: zero, infinity, the ends of the range, one and its neighbours, whole numbers.

    The largest odd number is among these, and the even one beyond it; and NaN. Subnormal numbers
    are not: where they are flushed, all else would be hidden with them.
    """
    info = finfo(dtype)
    eps = float(info.eps)
    range_ = [0.0, float(info.smallest_normal), float(info.max), np.inf]
    units = [0.5, 1 - eps / 2, 1, 1 + eps, 1.5, 2, 3, 2 / eps - 1, 2 / eps]
    sizes = np.array([*range_, *units])
    return np.array([*sizes, *-sizes, np.nan])


def whole(words: Words, shape: Shape, dtype: DType, factors: int = 1, spare: int = 0) -> Values:
    """Whole numbers of all magnitudes: random bits, shifted by a random number of places.

    The product of so many `factors` has so many bits to `spare` at least.
    """
    bits = max((int(iinfo(dtype).bits) - spare) // factors, 2)
    raw = np.asarray(words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
    kind = np.uint64 if "uint" in dtype.name else np.int64
    places = 64 - bits + np.floor(bits * unit(words, shape))
    return np.asarray(raw.view(kind) >> places.astype(kind))


def akin(words: Words, shape: Shape, dtype: DType) -> Values:
    """Whole numbers that have some of their leading bits in common, or all but the last."""
    bits = int(iinfo(dtype).bits)
    raw = np.asarray(words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
    alike = np.floor(bits * unit(words, shape)).astype(np.uint64)
    values = (COMMON ^ (raw >> alike)) >> np.uint64(64 - bits)
    return np.asarray(values.astype(f"u{dtype.itemsize}").view(dtype))


def endings(words: Words, shape: Shape, dtype: DType) -> Values:
    """Whole numbers whose last bits are the same: cut to half or a quarter of them, all are equal.

    Others differ in the first bits alone.
    """
    bits = int(iinfo(dtype).bits)
    raw = np.asarray(words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
    kept = np.uint64(bits // 2 if words.random_raw() % 2 else bits // 4)
    values = (raw << kept) | (COMMON & ((np.uint64(1) << kept) - np.uint64(1)))
    return np.asarray(values.astype(f"u{dtype.itemsize}").view(dtype))


def divisors(words: Words, shape: Shape, dtype: DType, factors: int = 1) -> Values:
    """As `whole`, without zero."""
    values = whole(words, shape, dtype, factors)
    return np.where(values == 0, 1, values).astype(values.dtype)


def borders(words: Words, shape: Shape, dtype: DType, to: str) -> Values:
    """Where a conversion of floating-point numbers to the dtype `to` has to decide.

    All numbers of a narrower format, subnormal ones, infinities and NaN among them; what lies
    halfway between two of them; the neighbours of both. Whole numbers, in the range of `to`, and
    their neighbours. One in four is normal.
    """
    target = np.dtype(getattr(ml_dtypes, to, to))
    if to == "bool":
        smallest = float(finfo(dtype).smallest_subnormal)
        values = cycled(words, shape, np.dtype(float), 0, -0.0, smallest, -smallest, 1, np.nan)
    elif "int" in to:
        values = whole(words, shape, target).astype(np.float64)
    else:
        values = _halfway(words, shape, min(target, dtype, key=lambda kind: kind.itemsize))
    values = np.where(unit(words, shape) < 0.25, normal(words, shape, dtype), values)
    with np.errstate(all="ignore"):
        rounded = np.asarray(values.astype(dtype))
    if dtype.itemsize > 1:
        step = np.where(np.isfinite(rounded), np.floor(3 * unit(words, shape)) - 1, 0)
        rounded = numbers(ordinals(rounded) + step.astype(np.int64), dtype)
    if "int" not in to:
        return rounded
    info, values = iinfo(target), rounded.astype(np.float64)
    inside = (values > int(info.min) - 1.0) & (values < int(info.max) + 1.0)
    return np.where(inside, values, 1.0)


def _halfway(words: Words, shape: Shape, dtype: DType) -> Values:
    """Numbers of a format by random bits, or the middle between one and a neighbour, in float64.

    Of float64 these are numbers.
    """
    bits = 8 * dtype.itemsize
    raw = np.asarray(words.random_raw(math.prod(shape)), np.uint64).reshape(shape)
    pattern = (raw >> np.uint64(64 - bits)).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        first, second = (p.view(dtype).astype(np.float64) for p in (pattern, pattern ^ 1))
        return np.where(unit(words, shape) < 0.5, first, first / 2 + second / 2)


def near(words: Words, shape: Shape, dtype: DType, centre: float, most: int = 0) -> Values:
    """Consecutive numbers of the dtype, as many on one side of `centre` as on the other.

    Of more than `most` elements they are so many numbers again and again.
    """
    count = math.prod(shape)
    different = min(count, most or count)
    (middle,) = ordinals(np.array([centre], dtype))
    turn = np.arange(count, dtype=np.int64) % max(different, 1)
    places = middle - different // 2 + turn
    return numbers(places, dtype).reshape(shape)


def ordinals(values: Values) -> NDArray[np.int64]:
    """The place of each value among the numbers of its dtype: neighbours differ by one.

    -inf ... -0, 0 ... inf: minus zero has the ordinal -1 and zero 0; NaNs lie beyond the
    infinities.
    """
    bits = values.dtype.itemsize * 8
    pattern = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
    magnitude = pattern & np.int64((1 << (bits - 1)) - 1)
    return np.where(pattern < 0, -1 - magnitude, magnitude)


def numbers(places: NDArray[np.int64], dtype: DType) -> Values:
    """The value at each place, see `ordinals`."""
    sign = np.uint64(1 << (8 * dtype.itemsize - 1))
    magnitude = np.where(places < 0, -1 - places, places).astype(np.uint64)
    pattern = np.where(places < 0, magnitude | sign, magnitude)
    return pattern.astype(f"u{dtype.itemsize}").view(dtype)


REGIMES: Mapping[str, Callable[..., Values]] = {
    regime.__name__: regime
    for regime in (
        normal,
        uniform,
        positive,
        nonzero,
        heavy,
        offset,
        onehot,
        ties,
        crowded,
        constant,
        often,
        equal,
        singular,
        scaled,
        huge,
        far,
        vast,
        tiny,
        below,
        naturals,
        within,
        places,
        distinct,
        shuffled,
        cycled,
        mask,
        leading,
        every,
        octets,
        bits,
        unbounded,
        special,
        near,
        whole,
        akin,
        endings,
        divisors,
        borders,
    )
}
