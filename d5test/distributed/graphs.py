"""Who is beside whom: connected graphs over the ranks, each with as many neighbours as the others.

In such a graph of degree `d` each rank takes the mean of itself and its neighbours. The matrix of
that, `mixing`, is symmetric and doubly stochastic: rows and columns sum to one. So the mean over
the ranks stays, and the distance from it shrinks with each round, at least by the factor
1 - `spectral_gap`. Lian et al., NIPS 2017 (arXiv 1705.09056), assumption 1.
"""

import random
from collections.abc import Callable, Mapping
from functools import cache
from math import isqrt
from typing import Any

import numpy as np

Graph = Callable[[int, int], tuple[int, ...]]
"""(rank, size) -> the neighbours of a rank in order, itself excluded."""


def ring(rank: int, size: int) -> tuple[int, ...]:
    """The ranks before and after this one: two, or one, or none."""
    return tuple(sorted({(rank - 1) % size, (rank + 1) % size} - {rank}))


def torus(rank: int, size: int) -> tuple[int, ...]:
    """The ranks beside, above and below, on a grid as square as can be: four, or fewer.

    Of a prime number of ranks the grid is one row: a ring.
    """
    rows = max(rows for rows in range(1, isqrt(size) + 1) if size % rows == 0)
    columns = size // rows
    row, column = divmod(rank, columns)
    beside = {row * columns + other for other in ring(column, columns)}
    return tuple(sorted(beside | {other * columns + column for other in ring(row, rows)}))


def random_regular(rank: int, size: int) -> tuple[int, ...]:
    """Three neighbours, on an odd number of ranks four; drawn, but always the same ones."""
    return _pairing(size, min(size - 1, 4 if size % 2 else 3))[rank]


@cache
def _pairing(size: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """A connected graph by the pairing model (Bollobas 1980): drawn until it is simple."""
    chance, ends = random.Random(size), [rank for rank in range(size) for _ in range(degree)]
    while True:
        chance.shuffle(ends)
        beside: list[set[int]] = [set() for _ in range(size)]
        for a, b in zip(ends[::2], ends[1::2], strict=True):
            beside[a].add(b)
            beside[b].add(a)
        simple = all(len(b) == degree and rank not in b for rank, b in enumerate(beside))
        if simple and len(_reached(beside)) == size:
            return tuple(tuple(sorted(b)) for b in beside)


def _reached(beside: list[set[int]]) -> set[int]:
    reached, new = {0}, {0}
    while new:
        new = set().union(*(beside[rank] for rank in new)) - reached
        reached |= new
    return reached


GRAPHS: Mapping[str, Graph] = {"ring": ring, "torus": torus, "random_regular": random_regular}
"""By name."""


def mixing(graph: Graph, size: int) -> Any:
    """The matrix (size, size) of the mean over each rank and its neighbours."""
    beside = np.eye(size)
    for rank in range(size):
        beside[rank, list(graph(rank, size))] = 1
    return beside / beside.sum(axis=1, keepdims=True)


def spectral_gap(matrix: Any) -> float:
    """1 less the second largest magnitude of an eigenvalue of a symmetric matrix."""
    magnitudes = np.sort(np.abs(np.linalg.eigvalsh(matrix)))
    return 1.0 - float(magnitudes[-2]) if len(magnitudes) > 1 else 1.0
