"""Graphs over the ranks: regular, symmetric and connected, and how fast they mix."""

from math import cos, pi

import numpy as np
import pytest

from d5test.distributed.graphs import GRAPHS, mixing, random_regular, ring, spectral_gap, torus

SIZES = range(1, 26)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
def test_mixing_is_doubly_stochastic_symmetric_and_contracts(name: str, size: int) -> None:
    matrix = mixing(GRAPHS[name], size)
    assert np.array_equal(matrix, matrix.T)
    assert np.all(matrix >= 0)
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=4e-16 * size)
    assert len({len(GRAPHS[name](rank, size)) for rank in range(size)}) == 1
    assert all(rank not in GRAPHS[name](rank, size) for rank in range(size))
    assert spectral_gap(matrix) > 0  # connected, and not bipartite, as each rank keeps a share


@pytest.mark.parametrize("size", range(3, 26))
def test_the_gap_of_a_ring_is_that_of_the_formula(size: int) -> None:
    magnitudes = [abs(1 + 2 * cos(2 * pi * k / size)) / 3 for k in range(1, size)]
    assert spectral_gap(mixing(ring, size)) == pytest.approx(1 - max(magnitudes), abs=1e-14)


def test_degrees() -> None:
    assert [len(torus(0, size)) for size in (1, 2, 4, 6, 7, 9, 12, 16)] == [0, 1, 2, 3, 2, 4, 4, 4]
    assert [len(random_regular(0, size)) for size in (1, 2, 3, 4, 5, 6, 7, 8)] == [
        0, 1, 2, 3, 4, 3, 4, 3,
    ]  # fmt: skip


def test_on_many_ranks_a_ring_mixes_slowest() -> None:
    gaps = {name: spectral_gap(mixing(graph, 64)) for name, graph in GRAPHS.items()}
    assert gaps["ring"] < gaps["torus"] / 10
    assert gaps["ring"] < gaps["random_regular"] / 10
