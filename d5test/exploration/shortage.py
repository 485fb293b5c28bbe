"""Whether enough of a cell was judged."""

from typing import Any

from d5test.client.messages import RowInfo
from d5test.outcome.tally import Tally, rarely_judged

VALUES = ("forward", "low_precision")
"""The checks that a row has to be asked at all."""
NEEDED = 10
"""Telling cases without which a cell of a value check is untested."""
A_PART = 0.1
"""Of each output and gradient so much has to be judged on the average, where a cell is to count as
tested. Where operands tie, chance decides of which one the gradient is."""


def refused(tally: Tally, check: Any, row: RowInfo | None) -> bool:
    """Whether a user's own row refuses all cases of its values, in a dtype that it declares."""
    nothing = not (tally.right or tally.fault or tally.known or tally.void or tally.left_out)
    declared = row is not None and not row.ours and tally.dtype in row.dtypes
    by_row = tally.unsupported == tally.refused_by_row > 0
    return declared and check.name in VALUES and nothing and by_row


def refusal(tally: Tally) -> str:
    """Why a cell counts as untested whose row refuses all cases."""
    reason = max(tally.reasons, key=tally.reasons.__getitem__)
    return (
        f"nothing was judged: the row refuses all of the {tally.unsupported} cases that were "
        f"drawn: {reason}. Say which it takes, by attributes= or where= in the row, or leave the "
        "dtype out of its dtypes="
    )


def shortage(tally: Tally, check: Any, examples: int) -> str:
    """Why a cell counts as untested; empty if it was tested, or did not have to be."""
    if tally.fault or tally.left_out:
        return ""
    if not tally.right:
        if tally.drawn and not tally.void:
            return ""
        return f"nothing was judged: {tally.void} of {tally.drawn} cases are void"
    if check.fixed or check.kind != "value":
        return ""
    if shares := rarely_judged(tally.shares, NEEDED, A_PART):
        return f"on the average only {shares} could be judged"
    needed = NEEDED if examples >= 2 * NEEDED else max(1, examples // 2)
    if tally.telling >= needed:
        return ""
    return (
        f"only {tally.telling} cases were strict enough to expose a wrong result; {needed} are "
        f"needed ({tally.right} right, {tally.known} known, {tally.inapplicable} inapplicable, "
        f"{tally.unsupported} unsupported, {tally.void} void)"
    )
