"""Whether a fault of a row that replaces d5test's own is the framework's, and known."""

from contextlib import suppress
from typing import Any

from d5test.backends.base import Unsupported
from d5test.client.messages import Crashed, Hung, Raised, Result, same
from d5test.outcome.fault import Fault


def is_known_of_ours(client: Any, fault: Fault, *checks: str) -> bool:
    """Whether the fault is known of d5test's own row, and this very row gives the same bits.

    Then both call the function that has it. One that raises is no such fault: which exception is
    whose, nobody can tell.
    """
    if not fault.evidence.feeds or not client.known.of_ours(fault.case, *checks):
        return False
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
    """Bit for bit, outputs and gradients."""
    pairs = ((one.outputs, other.outputs), (one.gradients or (), other.gradients or ()))
    return all(len(a) == len(b) and _dtypes(a) == _dtypes(b) and same(a, b) for a, b in pairs)


def _dtypes(arrays: Any) -> list[Any]:
    return [None if x is None else x.dtype for x in arrays]
