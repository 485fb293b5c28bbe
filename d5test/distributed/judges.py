"""How ranks judge: all are asked, and one reads what came of it.

Requirements: a judge is called by one process only, since eight that judge the same, where ranks
share cores, are four times as slow as one; what it finds all ranks have; a fault looks the same
whoever found it; no rank leaves before all have the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from d5test.backends.base import Unsupported
from d5test.case import Case
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault, kind_of_fault
from d5test.outcome.tally import Inapplicable

Judge = Callable[[], Judgement]
"""Called by one process, once it has what all ranks have. Raises a fault."""
Ask = Callable[[], Judge]
"""Has the ranks do something; its judge reads what came of it, and nothing does before."""
Outcome = Judgement | Fault | Inapplicable | Unsupported
Shared = tuple[Any, list[Any]]
"""What this rank has, and room for what each has."""


def asked(ask: Ask) -> Judge:
    """Its judge; what cannot be asked, the judge says."""
    try:
        return ask()
    except (Inapplicable, Unsupported) as why:
        reason = why

        def refused() -> Judgement:
            raise reason

        return refused


def in_turns(
    comm: Any, judges: Sequence[Judge], shared: Sequence[Sequence[Shared]] = ()
) -> list[Outcome]:
    """What comes of each judge, at all ranks of an MPI communicator.

    Each is called by one rank, whose turn it is, once that rank has what all have `shared` for it.
    Whatever else it raises, it raises there.
    """
    turns = [range(rank, len(judges), comm.size) for rank in range(comm.size)]
    mine = turns[comm.rank]
    if any(shared):
        sent = [[[own for own, _ in shared[k]] for k in theirs] for theirs in turns]
        received = comm.alltoall(sent)
        for at, k in enumerate(mine):
            for number, (_, room) in enumerate(shared[k]):
                room.extend(theirs[at][number] for theirs in received)
    every = comm.allgather([_packed(outcome(judges[k])) for k in mine])
    outcomes = [_unpacked(every[k % comm.size][k // comm.size]) for k in range(len(judges))]
    if any(isinstance(outcome, Fault) for outcome in outcomes):
        _all_have_come(comm)
    return outcomes


def single(ask: Callable[[Any, Case], Judge]) -> Callable[[Any, Case], Judgement]:
    """The check that asks a communicator a single case, and judges it."""
    return lambda comm, case: settled(comm.outcomes([partial(ask, comm, case)])[0])


def agreed(comm: Any, judge: Judge) -> Judgement:
    """What `judge` returns at rank 0, at all ranks, or the fault that it raises."""
    return settled(in_turns(comm, [judge])[0])


def settled(outcome: Outcome) -> Judgement:
    """The judgement, or else it is raised."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def outcome(judge: Judge) -> Outcome:
    """What it returns, or the fault or the reason that it raises."""
    try:
        return judge()
    except (Fault, Inapplicable, Unsupported) as why:
        return why


def _packed(outcome: Outcome) -> Any:
    """So that it can travel: the class of a fault is made at run time."""
    if not isinstance(outcome, Fault):
        return outcome
    return (outcome.kind, outcome.check, outcome.case, outcome.headline, outcome.details,
            outcome.judgement, outcome.evidence)  # fmt: skip


def _unpacked(packed: Any) -> Outcome:
    if not isinstance(packed, tuple):
        outcome: Outcome = packed
        return outcome
    kind, *words = packed
    return kind_of_fault(kind)(*words)


def _all_have_come(comm: Any) -> None:
    """Wait for the others: a rank that leaves ends the collective that others are still in."""
    from d5test.distributed.guarded import Left

    with suppress(Left):  # a rank that has left was here, and so all were
        comm.barrier()
