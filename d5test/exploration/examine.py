"""One check on all of its fixed cases: each is judged, and none shrinks.

Known failures are judged too, since what is measured of them belongs to the whole; whatever comes
of it, they are counted as known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from d5test.backends.base import Unsupported
from d5test.case import Case
from d5test.checks.fault import Fault
from d5test.exploration.tally import Tally


def examined(
    client: Any,
    check: Any,
    cases: Iterable[Case],
    tally: Tally,
    covered: Callable[[Case], bool],
    until: float = float("inf"),
) -> list[Fault]:
    """The worst fault of each kind; fills the tally. `until` is as in `Exploration`."""
    worst: dict[str, Fault] = {}
    for case in cases:
        if time.monotonic() > until:
            tally.left_out = "the budget was spent"
            break
        known = covered(case)
        try:
            judgement = check.run(client, case)
        except Unsupported as unsupported:
            tally.count_unsupported(str(unsupported))
            continue
        except Fault as fault:
            judgement = fault.judgement
            if not known and _ratio(fault) > _ratio(worst.get(fault.kind)):
                worst[fault.kind] = fault
        else:
            if not known:
                tally.count_right(judgement, case)
        tally.known += known
        tally.count_accuracy(judgement, case.op)
    return sorted(worst.values(), key=lambda fault: fault.kind)


def _ratio(fault: Fault | None) -> float:
    """How wrong: -1 for nothing, 0 for what has no number."""
    if fault is None:
        return -1.0
    return fault.judgement.ratio if fault.judgement is not None else 0.0
