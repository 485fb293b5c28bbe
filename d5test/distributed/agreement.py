"""One verdict for all processes: rank 0 judges, the others hear of it and rest meanwhile.

Where ranks share cores, eight that judge the same are four times as slow as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault, kind_of_fault


def agree(comm: Any, judge: Callable[[], Judgement]) -> Judgement:
    """What `judge` returns at rank 0 of the MPI communicator `comm`, or the fault it raises."""
    verdict: tuple[Judgement | None, Any] = (None, None)
    if comm.rank == 0:
        try:
            verdict = (judge(), None)
        except Fault as fault:
            verdict = (None, _packed(fault))
    judgement, packed = comm.bcast(verdict)
    if judgement is None:
        kind, *said = packed
        raise kind_of_fault(kind)(*said)
    found: Judgement = judgement
    return found


def _packed(fault: Fault) -> tuple[Any, ...]:
    """What makes the fault again: its class is made at run time, and does not travel."""
    return (
        fault.kind, fault.check, fault.case, fault.headline, fault.details, fault.judgement,
        fault.evidence,
    )  # fmt: skip
