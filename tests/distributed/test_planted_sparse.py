"""A sparse allreduce that is wrong is found; the formulas hold on every number of ranks."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from d5test.distributed.checks import table
from d5test.distributed.communicator import Virtual, run, shuffled
from d5test.distributed.sparse import SPARSE
from d5test.outcome.fault import Fault
from d5test.reference import sparse_collectives
from d5test.reference.sparse_collectives import SPARSE_ALLREDUCE, length
from tests.distributed import wrong_sparse as wrong

CASES = 40
DOUBLING, SPLIT = SPARSE_ALLREDUCE


def first_fault(name: str, check: str, dtype: str = "float32") -> Fault | None:
    row, comm = SPARSE[check], Virtual()
    for case in islice(table(row, name, comm.sizes, dtype, 0), CASES):
        try:
            row.run(comm, case)
        except Fault as fault:
            return fault
    return None


@pytest.mark.parametrize("name", SPARSE_ALLREDUCE)
@pytest.mark.parametrize(
    ("part", "planted", "check", "kind"),
    [
        ("stream", wrong.never_dense, "volume", "volume"),
        ("stream", wrong.always_dense, "volume", "volume"),
        ("stream", wrong.in_other_order, "values", "value"),
        ("stream", wrong.small_items_lost, "values", "value"),
        ("part_of", wrong.one_further, "census", "census"),
        ("part_of", wrong.one_further, "values", "value"),
        ("part_of", wrong.indices_alone, "values", "value"),
        ("exchange", wrong.sent_first, "census", "deadlock"),
        ("exchange", wrong.without_header, "values", "size"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_wrong_part_is_found(
    name: str, part: str, planted: Any, check: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_collectives, part, planted)
    fault = first_fault(name, f"sparse_{check}")
    assert fault is not None
    assert fault.kind == kind, fault.headline
    assert f"algorithm='{name}'" in fault.headline


@pytest.mark.parametrize(
    ("name", "schedule", "check", "kind"),
    [
        (DOUBLING, wrong.overwriting, "values", "value"),
        (DOUBLING, wrong.overwriting, "census", "census"),
        (SPLIT, wrong.counted_twice, "values", "value"),
        (SPLIT, wrong.counted_twice, "agreement", "disagreement"),
        (SPLIT, wrong.counted_twice, "census", "census"),
        (SPLIT, SPARSE_ALLREDUCE[DOUBLING].schedule, "volume", "volume"),
    ],
)
def test_a_wrong_schedule_is_found(
    name: str, schedule: Any, check: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = replace(SPARSE_ALLREDUCE[name], schedule=schedule)
    monkeypatch.setitem(SPARSE_ALLREDUCE, name, row)  # type: ignore[arg-type]
    fault = first_fault(name, f"sparse_{check}")
    assert fault is not None
    assert fault.kind == kind, fault.headline


@pytest.mark.parametrize("name", SPARSE_ALLREDUCE)
@pytest.mark.parametrize("check", SPARSE)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int64"])
def test_nothing_is_found_in_what_is_right(name: str, check: str, dtype: str) -> None:
    assert first_fault(name, check, dtype) is None


@pytest.mark.parametrize("name", SPARSE_ALLREDUCE)
@pytest.mark.parametrize("size", [*range(1, 10), 13, 16])
def test_the_formulas_hold(name: str, size: int) -> None:
    row = SPARSE_ALLREDUCE[name]
    for n in (0, 1, size - 1, 97):
        for share in (2, 3, 30):
            arrays = [
                np.where(np.arange(n) % share == rank % share, rank + 1, 0).astype(np.float32)
                for rank in range(size)
            ]
            supports, expected = [x != 0 for x in arrays], np.sum(arrays, axis=0)
            sent = run([row.schedule(r, size, x) for r, x in enumerate(arrays)], shuffled(size))
            assert all(np.array_equal(x, expected) for x in arrays)
            assert [t.bytes for t in sent] == row.sent(supports, 4)
            assert sum(t.messages for t in sent) == 2 * row.streams(size)


def test_pairs_are_sent_while_they_are_shorter() -> None:
    """A float32 and its index take the place of two of them."""
    for count in range(9):
        support = np.arange(8) < count
        assert length(support, 4) == 8 + 4 * (2 * count if count < 4 else 8)


@pytest.mark.parametrize("exponent", [1, 2, 3])
def test_recursive_doubling_is_between_the_papers_bounds(exponent: int) -> None:
    """Of k items at each rank log2 p times k if all are in one place, p - 1 times if none is."""
    size, k, n = 1 << exponent, 5, 4096
    row, pair = SPARSE_ALLREDUCE[DOUBLING], 8
    same = [np.arange(n) < k] * size
    apart = [(np.arange(n) // k) == rank for rank in range(size)]
    headers = 8 * exponent
    assert row.sent(same, 4) == [headers + exponent * k * pair] * size
    assert row.sent(apart, 4) == [headers + (size - 1) * k * pair] * size
