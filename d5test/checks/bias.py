"""A bias below one ULP: results that are all rounded in one direction.

No case tells it, since each result is one of the two neighbours of the exact value, which the bar
grants. All cases of a cell together do (`d5test.numerics.rounding`).
"""

from typing import Any

from d5test.checks.inquiry import Inquiry
from d5test.numerics.rounding import FALSE_ALARM
from d5test.outcome.fault import Evidence, Fault
from d5test.outcome.roundings import Roundings


def rounded_to_nearest(check: str, client: Any, roundings: Roundings) -> Fault | None:
    """The fault that what a check judged is rounded in one direction, if it is.

    Its case is one in which all elements show it.
    """
    for part, those in (("", roundings), *roundings.parts.items()):
        direction = those.total.direction
        if direction in those.shown:
            return _fault(check, client, those, direction, part)
    return None


def _fault(check: str, client: Any, roundings: Roundings, direction: str, part: str) -> Fault:
    total, (_, case) = roundings.total, roundings.shown[direction]
    inquiry, way = Inquiry(check, client, case), total.ways[direction]
    evidence = Evidence(
        (inquiry.feed(),), "rounded", (inquiry.forward_bounds(inquiry.allowed),), inquiry.wanted
    )
    results = f"results {part}".strip()
    return inquiry.subject.fault(
        "biased", f"{results} are rounded {direction}, not to nearest", evidence,
        share=(
            f"of {roundings.cases} cases, {way.followed} of {way.against} elements went "
            f"{direction} that rounding to nearest takes the other way by 3/4 of a ULP; "
            f"{total.nearest} of all {total.elements} are the nearest number"
        ),
        mean=f"error {total.error / total.elements:+.3f} ULP, positive away from zero",
        chance=f"{way.chance:.1g}; at most {FALSE_ALARM:g} of honest cells are accused",
    )  # fmt: skip
