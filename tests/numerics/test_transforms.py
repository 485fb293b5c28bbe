"""Fourier transforms by three algorithms lie within the bar by norm, and a wrong one does not."""

from typing import Any

import numpy as np
import pytest

from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.judgement import judge
from d5test.reference.operators.signal import DFT, prime_factors

(SINGLE,) = classes("float32")


def roots(n: int, count: int) -> Any:
    """e^(-2 pi i t / n) in complex64, for each t below `count`."""
    return np.exp(-2j * np.pi * np.arange(count) / n).astype(np.complex64)


def by_sums(x: Any) -> Any:
    t = np.arange(len(x))
    return np.stack([(x * roots(len(x), len(x))[t * k % len(x)]).sum() for k in t])


def by_halves(x: Any) -> Any:
    """Cooley and Tukey 1965, as far as 2 divides the length."""
    n = len(x)
    if n % 2:
        return by_sums(x)
    even, odd = by_halves(x[::2]), roots(n, n // 2) * by_halves(x[1::2])
    return np.concatenate((even + odd, even - odd))


def by_convolution(x: Any) -> Any:
    """Bluestein 1970."""
    n = len(x)
    m = 1 << (2 * n - 1).bit_length()
    chirp = np.exp(-1j * np.pi * (np.arange(n) ** 2 % (2 * n)) / n).astype(np.complex64)
    a, b = np.zeros(m, np.complex64), np.zeros(m, np.complex64)
    a[:n], b[:n] = x * chirp, chirp.conj()
    b[m - n + 1 :] = chirp[:0:-1].conj()
    product = by_halves(a) * by_halves(b)
    return chirp * (by_halves(product.conj()).conj() / np.float32(m))[:n]


LENGTHS = (2, 3, 8, 12, 31, 64, 97, 128)


@pytest.mark.parametrize(
    ("transform", "n"),
    [
        *((transform, n) for transform in (by_sums, by_halves) for n in LENGTHS),
        *((by_convolution, n) for n in LENGTHS if n & (n - 1)),
    ],
)
def test_each_algorithm_lies_within_the_bar(transform: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    for sparse in (False, True):
        x = rng.standard_normal((n, 2)).astype(np.float32)
        x *= (np.arange(n) == n // 2)[:, None] if sparse else 1
        y = transform((x[:, 0] + 1j * x[:, 1]).astype(np.complex64))
        assert y.dtype == np.complex64
        bounds = forward_bounds(DFT(), (x,), SINGLE)
        got = np.stack((y.real, y.imag), -1)
        assert judge(bounds, [got]).right
        got[n // 3, 0] += np.float32(2e-3) * np.linalg.norm(x)
        assert not judge(bounds, [got]).right


def test_prime_factors() -> None:
    assert [prime_factors(n) for n in (1, 2, 12, 97)] == [[], [2], [2, 2, 3], [97]]
