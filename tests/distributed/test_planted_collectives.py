"""Wrong collectives are found, by the check that is meant to, and named; honest ones are not."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from d5test.distributed.checks import table
from d5test.distributed.collective import Collective
from d5test.distributed.communicator import LIBRARY, Virtual
from d5test.distributed.movement import MOVEMENT
from d5test.outcome.fault import Fault
from d5test.reference.semantics import COLLECTIVES
from tests.distributed import wrong_collectives as wrong

CASES = 60


def first_fault(
    comm: Any, subject: str, check: str, dtype: str = "float32", cases: int = CASES
) -> Fault | None:
    row = MOVEMENT[check]
    assert subject in row.subjects
    for case in islice(table(row, subject, comm.sizes, dtype, 0), cases):
        try:
            row.run(comm, case)
        except Fault as fault:
            return fault
    return None


def with_body(subject: str, body: Callable[..., Any]) -> Virtual:
    name, algorithm = subject.split("-")
    return Virtual(schedules=wrong.planted(name, algorithm, body))


PLANTED = [
    # block to the wrong rank, or to the wrong place
    ("scatter-linear", wrong.to_the_next, "moves", "data"),
    ("scatter-linear", wrong.to_the_next, "positions", "census"),
    ("gather-linear", wrong.gathered_backwards, "moves", "data"),
    ("gather-linear", wrong.gathered_backwards, "positions", "census"),
    ("send_receive-exchange", wrong.other_way_round, "positions", "census"),
    # the root ignored
    ("reduce-binomial", wrong.rank_0_for_root, "sums", "value"),
    ("reduce-binomial", wrong.rank_0_for_root, "positions", "census"),
    ("broadcast-binomial", wrong.root_as_a_rank_of_all, "moves", "data"),
    # elements, blocks and segments lost
    ("allgather-bruck", wrong.last_element_lost, "moves", "data"),
    ("allgather-bruck", wrong.last_element_lost, "positions", "census"),
    ("allgather-bruck", wrong.powers_of_two_only, "positions", "census"),
    ("broadcast-pipelined", wrong.last_segment_lost, "moves", "data"),
    ("all_to_all-pairwise", wrong.own_block_lost, "moves", "data"),
    ("all_to_all-pairwise", wrong.own_block_lost, "positions", "census"),
    ("gather-linear", wrong.own_block_not_placed, "moves", "data"),
    # sums
    ("reduce_scatter-ring", wrong.counted_twice, "sums", "value"),
    ("reduce_scatter-ring", wrong.counted_twice, "positions", "census"),
    ("reduce-binomial", wrong.left_out, "sums", "value"),
    ("reduce-binomial", wrong.left_out, "positions", "census"),
    ("reduce_scatter-ring", wrong.coarse, "sums", "value"),
    ("allreduce-ring", wrong.own_order, "sums", "disagreement"),
    # in place, and what was given
    ("all_to_all-pairwise", wrong.too_early, "moves", "data"),
    ("all_to_all-pairwise", wrong.too_early, "positions", "census"),
    ("reduce_scatter-pairwise", wrong.shared_room, "sums", "value"),
    ("reduce-binomial", wrong.sums_where_it_is_given, "sums", "mutated"),
    ("broadcast-binomial", wrong.beyond_its_room, "moves", "overrun"),
    # counts
    ("allgather-ring", wrong.equal_counts, "moves", "size"),
    ("all_to_all-pairwise", wrong.rows_for_columns, "positions", "size"),
    # barriers
    ("barrier-dissemination", wrong.one_round_less, "entry", "barrier"),
    ("barrier-binomial", wrong.nobody_is_told, "entry", "barrier"),
    ("barrier-binomial", wrong.open_door, "entry", "barrier"),
    # buffers, and cost
    ("send_receive-exchange", wrong.send_first, "moves", "deadlock"),
    ("allgather-ring", wrong.all_in_turn, "positions", "deadlock"),
    ("broadcast-binomial", wrong.sent_twice, "cost", "volume"),
    ("barrier-dissemination", wrong.one_round_less, "cost", "volume"),
]


@pytest.mark.parametrize(
    ("subject", "body", "check", "kind"), PLANTED, ids=lambda x: getattr(x, "__name__", x)
)
def test_it_is_found(subject: str, body: Callable[..., Any], check: str, kind: str) -> None:
    fault = first_fault(with_body(subject, body), subject, check)
    assert fault is not None
    assert fault.kind == kind
    name, algorithm = subject.split("-")
    assert f"collective='{name}', algorithm='{algorithm}'" in fault.headline


@pytest.mark.parametrize("check", MOVEMENT)
def test_nothing_is_found_in_what_is_right(check: str) -> None:
    row = MOVEMENT[check]
    for subject in row.subjects:
        if subject.endswith(LIBRARY):
            continue
        for dtype in row.dtypes:
            assert first_fault(Virtual(), subject, check, dtype, 12) is None


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("allgather-ring", wrong.gathered_and_handed_out),
        ("all_to_all-pairwise", wrong.all_at_once),
        ("reduce-binomial", wrong.backwards),
        ("barrier-binomial", wrong.through_rank_0),
    ],
)
def test_another_right_algorithm_is_not_accused(subject: str, body: Callable[..., Any]) -> None:
    comm = with_body(subject, body)
    for check, row in MOVEMENT.items():
        if subject in row.subjects and check != "cost":
            for dtype in row.dtypes:
                assert first_fault(comm, subject, check, dtype) is None


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_right_library_is_not_accused(name: str) -> None:
    for check, row in MOVEMENT.items():
        if f"{name}-{LIBRARY}" in row.subjects:
            assert first_fault(wrong.Library(), f"{name}-{LIBRARY}", check, row.dtypes[-1]) is None


@pytest.mark.parametrize(
    ("library", "name", "check", "dtype", "kind"),
    [
        (wrong.SortedGroups, "allgather", "moves", "float32", "data"),
        (wrong.GroupsMixedUp, "allgather", "moves", "int64", "data"),
        (wrong.GroupsMixedUp, "reduce_scatter", "sums", "float32", "value"),
        (wrong.GroupsMixedUp, "allreduce", "positions", "bfloat16", "census"),
        (wrong.ThroughFloats, "scatter", "moves", "int64", "data"),
        (wrong.FlushesToZero, "send_receive", "moves", "float16", "data"),
    ],
)
def test_a_wrong_library_is_found(
    library: Any, name: str, check: str, dtype: str, kind: str
) -> None:
    fault = first_fault(library(), f"{name}-{LIBRARY}", check, dtype)
    assert fault is not None
    assert fault.kind == kind


def test_what_stands_in_the_wrong_place_is_named() -> None:
    comm = with_body("scatter-linear", wrong.to_the_next)
    (case,) = islice(table(MOVEMENT["positions"], "scatter-linear", [3], "bfloat16", 0), 1)
    op = Collective(
        collective="scatter", algorithm="linear", groups=((2, 0, 1),), counts=((100,) * 3,), root=1
    )
    inputs = tuple(
        type(tensor)((300 * (rank == 0),), "bfloat16") for rank, tensor in enumerate(case.inputs)
    )
    with pytest.raises(Fault) as found:
        MOVEMENT["positions"].run(comm, type(case)(op, inputs))
    told = found.value.details
    # rank 2 is the first of its group
    assert told["where"] == "element [0] at rank 0"
    assert told["got"] == "element [200] of rank 0"
    assert told["want"] == "element [100] of rank 0"


def test_who_has_not_entered_is_named() -> None:
    op = Collective(
        collective="barrier", algorithm="dissemination", groups=((4, 3, 2, 1, 0),), counts=((0,),)
    )
    (case,) = islice(table(MOVEMENT["entry"], "barrier-dissemination", [5], "float32", 0), 1)
    comm = with_body("barrier-dissemination", wrong.one_round_less)
    with pytest.raises(Fault) as found:
        MOVEMENT["entry"].run(comm, type(case)(op, case.inputs))
    assert found.value.details["rank"] == "4"
    assert found.value.details["missing"] == "the entry of 3"
