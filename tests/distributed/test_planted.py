"""What is wrong on purpose is found, by the check that is meant to, and named."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from d5test.distributed.checks import COLLECTIVE, table
from d5test.distributed.communicator import Virtual
from d5test.outcome.fault import Fault
from d5test.reference.collectives import ALLREDUCE
from tests.distributed import wrong

CASES = 40


def first_fault(name: str, schedule: Callable[..., Any], check: str, dtype: str) -> Fault | None:
    comm = Virtual(wrong.planted(name, schedule))
    for case in islice(table(COLLECTIVE[check], name, comm.sizes, dtype, 0), CASES):
        try:
            COLLECTIVE[check].run(comm, case)
        except Fault as fault:
            return fault
    return None


@pytest.mark.parametrize(
    ("name", "schedule", "check", "kind"),
    [
        ("ring", wrong.last_step_skipped, "values", "value"),
        ("ring", wrong.last_step_skipped, "agreement", "disagreement"),
        ("ring", wrong.last_step_skipped, "census", "census"),
        ("ring", wrong.last_step_skipped, "volume", "volume"),
        ("ring", wrong.chunks_swapped, "values", "value"),
        ("star", wrong.one_left_out, "values", "value"),
        ("star", wrong.one_left_out, "census", "census"),
        ("tree", wrong.too_short, "values", "size"),
        ("ring", wrong.send_first, "values", "deadlock"),
        ("recursive_doubling", wrong.in_place, "values", "value"),
        ("star", wrong.own_order, "agreement", "disagreement"),
        ("star", wrong.everything_sent, "volume", "volume"),
        ("star", wrong.coarse, "values", "value"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_it_is_found(name: str, schedule: Callable[..., Any], check: str, kind: str) -> None:
    fault = first_fault(name, schedule, check, "float32")
    assert fault is not None
    assert fault.kind == kind
    assert f"algorithm='{name}'" in fault.headline


@pytest.mark.parametrize("dtype", ["float64", "int64", "bfloat16"])
def test_the_message_has_the_dtype(dtype: str) -> None:
    fault = first_fault("ring", wrong.last_step_skipped, "values", dtype)
    assert fault is not None
    assert fault.details["check"] == f"values in {dtype}"


@pytest.mark.parametrize("algorithm", ALLREDUCE)
@pytest.mark.parametrize("check", COLLECTIVE)
def test_nothing_is_found_in_what_is_right(algorithm: str, check: str) -> None:
    assert first_fault(algorithm, ALLREDUCE[algorithm].schedule, check, "float16") is None


def test_the_rank_that_is_not_counted_is_named() -> None:
    fault = first_fault("star", wrong.one_left_out, "census", "float32")
    assert fault is not None
    last = len(fault.case.inputs) - 1
    assert fault.details["whose"] == f"rank {last}'s"
    assert fault.details["counted"] == "0 times"


def test_a_deadlock_names_the_step_of_each_rank() -> None:
    fault = first_fault("ring", wrong.send_first, "values", "float64")
    assert fault is not None
    size = len(fault.case.inputs)
    for rank in range(size):
        words = fault.details[f"rank {rank}"]
        assert words.startswith("in step 1 waits to send ")
        assert words.endswith(f"to rank {(rank + 1) % size}")


def test_a_message_of_the_wrong_size_names_both_ends() -> None:
    fault = first_fault("tree", wrong.too_short, "values", "float64")
    assert fault is not None
    (tensor, *_) = fault.case.inputs
    assert tensor is not None
    (n,) = tensor.shape
    said = fault.details["message"]
    assert said.startswith("rank ")
    assert f"sends {8 * (n - 1)} bytes" in said
    assert f"has room for {8 * n} in its step" in said


def test_a_sum_in_half_the_bits_is_right_by_census_alone() -> None:
    """The controls of `values` are what finds it: counts are small whole numbers."""
    assert first_fault("star", wrong.coarse, "census", "float64") is None
    assert first_fault("star", wrong.coarse, "values", "float64") is not None


def test_sums_in_different_orders_are_each_right() -> None:
    """So only `agreement` can find them."""
    assert first_fault("star", wrong.own_order, "census", "float32") is None
