"""Whether a fault of a row that replaces d5test's own is the framework's, and known."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

from d5test.backends.base import Unsupported
from d5test.client.messages import Crashed, Hung, Raised, Result, same
from d5test.known.failure import taken_for
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable


def is_known_of_ours(
    client: Any, fault: Fault, judge: Callable[[Any, Any], object], *checks: str
) -> bool:
    """Whether the fault is known of d5test's own row, and this very row gives the same bits.

    Then both call the function that has it. A known failure masks the case, or explains it by its
    error model, by which it is judged again. One that raises is no such fault: which exception is
    whose, nobody can tell.
    """
    case = fault.case
    if not fault.evidence.feeds or not client.known.of_other_code(case):
        return False
    if fault.kind == "not compiled":  # which no bits show
        return False
    if not _agrees(client, fault):
        return False
    known = client.known.of_ours
    if known.covers(case, *checks):
        return True
    if not known.models(case):
        return False
    with taken_for(client, known):
        try:
            judge(client, case)
        except (Fault, Inapplicable, Unsupported):
            return False
    return True


def _agrees(client: Any, fault: Fault) -> bool:
    """Whether both rows give the same, bit for bit."""
    with suppress(Unsupported, Raised, Crashed, Hung):
        theirs, ours = (_results(client, fault, ours) for ours in (False, True))
        return all(map(_alike, theirs, ours))
    return False


def _results(client: Any, fault: Fault, ours: bool) -> list[Result]:
    evidence, case = fault.evidence, fault.case
    results: list[Result] = client.run(
        case.op, list(evidence.feeds), wanted=evidence.wanted or None, reuse=evidence.reuse,
        form=case.form, ours=ours,
    )  # fmt: skip
    return results


def _alike(one: Result, other: Result) -> bool:
    """Outputs and gradients, and what became of inputs and of earlier results."""
    pairs = ((getattr(one, f.name) or (), getattr(other, f.name) or ()) for f in fields(Result))
    return all(len(a) == len(b) and _dtypes(a) == _dtypes(b) and same(a, b) for a, b in pairs)


def _dtypes(arrays: Any) -> list[Any]:
    return [None if x is None else x.dtype for x in arrays]
