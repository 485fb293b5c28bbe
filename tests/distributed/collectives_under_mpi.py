"""`mpirun -n 3 python -m tests.distributed.collectives_under_mpi`, with `gloo` for torch's own.

Prints a line for each wrong collective: the kind of the first fault that its check finds.
"""

import sys
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from mpi4py import MPI

from d5test.backends.base import Unsupported
from d5test.distributed.checks import table
from d5test.distributed.movement import MOVEMENT
from d5test.distributed.mpi import Mpi, enter
from d5test.outcome.fault import Fault
from tests.distributed import wrong_collectives as wrong

WORLD = MPI.COMM_WORLD


class NobodyWaits(Mpi):
    """MPI without its barrier."""

    def own(self, op: Any, place: Any, group: Any, x: Any, y: Any) -> None:
        enter(op, group, y, lambda: None)


class WrongRoot(Mpi):
    """MPI, its roots one too far."""

    def own(self, op: Any, place: Any, group: Any, x: Any, y: Any) -> None:
        layout = place.layout
        if op.collective == "broadcast":
            y[...] = x if x.size else y
            group.Bcast(y, root=(layout.root + 1) % layout.size)
        else:
            super().own(op, place, group, x, y)


class AddsTwice(Mpi):
    """MPI, whose sums count the first rank of a group twice."""

    def own(self, op: Any, place: Any, group: Any, x: Any, y: Any) -> None:
        given = x.copy() * (2 if place.rank == 0 and place.layout.size > 1 else 1)
        super().own(replace(op, in_place=False), place, group, given, y)


class OtherGroup(Mpi):
    """MPI, which hands each group what all ranks have."""

    def own(self, op: Any, place: Any, group: Any, x: Any, y: Any) -> None:
        super().own(op, place, group, x, y)
        if len(place.members) < WORLD.size:
            y[...] = y[::-1].copy()


def first_fault(comm: Any, subject: str, check: str) -> str:
    """Its kind, or `nothing`."""
    row = MOVEMENT[check]
    for case in islice(table(row, subject, comm.sizes, "float32", 0), 60):
        try:
            with suppress(Unsupported):
                row.run(comm, case)
        except Fault as fault:
            return fault.kind
    return "nothing"


def scheduled(subject: str, body: Any) -> Mpi:
    """Ours, one of them another."""
    return Mpi(WORLD, schedules=wrong.planted(*subject.split("-"), body))


if __name__ == "__main__":
    planted: list[tuple[Any, str, str]] = [
        (NobodyWaits(WORLD), "barrier-library", "entry"),
        (Mpi(WORLD), "barrier-library", "entry"),
        (WrongRoot(WORLD), "broadcast-library", "moves"),
        (AddsTwice(WORLD), "reduce_scatter-library", "positions"),
        (AddsTwice(WORLD), "allreduce-library", "sums"),
        (OtherGroup(WORLD), "allgather-library", "positions"),
    ]
    for subject, body, check in (
        ("scatter-linear", wrong.to_the_next, "positions"),
        ("all_to_all-pairwise", wrong.too_early, "moves"),
        ("barrier-dissemination", wrong.one_round_less, "entry"),
        ("reduce-binomial", wrong.sums_where_it_is_given, "sums"),
        ("reduce_scatter-ring", wrong.counted_twice, "positions"),
        ("broadcast-binomial", wrong.sent_twice, "cost"),
    ):
        planted.append((scheduled(subject, body), subject, check))
    if sys.argv[1:] == ["gloo"]:
        import torch.distributed as dist

        from d5test.distributed.gloo import Gloo, joined

        with joined(WORLD) as store:
            right = first_fault(Gloo(WORLD, store), "barrier-library", "entry")
            dist.barrier = lambda group: None  # type: ignore[assignment]
            found = first_fault(Gloo(WORLD, store), "barrier-library", "entry")
        planted = []
        if not WORLD.rank:
            print(f"gloo's barrier: {right}; none: {found}", flush=True)
    for comm, subject, check in planted:
        found = first_fault(comm, subject, check)
        if not WORLD.rank:
            print(f"{type(comm).__name__} {subject} {check}: {found}", flush=True)
