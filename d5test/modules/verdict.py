"""What is said of a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from d5test.outcome.fault import Fault
from d5test.outcome.tally import rarely_judged

RIGHT, WRONG, UNTESTED = "right", "wrong", "untested"


@dataclass
class Verdict:
    """What is said of a candidate.

    ratio    the largest error / bar among the right results
    shares   the sum of the shares of elements that were judged, over the calls that were
    each     the same of each output and gradient, and its calls
    gradient whether gradients were judged
    notes    what a reader has to know of it, and is no fault
    own      whether it is upon the problem's own module
    """

    candidate: str
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ratio: float = 0.0
    judged: int = 0
    shares: float = 0.0
    each: dict[str, list[float]] = field(default_factory=dict)
    telling: int = 0
    gradient: bool = False
    broken: str = ""
    own: bool = False
    times: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`right`, `wrong` or `untested`."""
        if self.faults or self.broken:
            return WRONG
        return RIGHT if self.telling and not self.rarely else UNTESTED

    @property
    def rarely(self) -> str:
        """The outputs and gradients of which too little was judged, in words."""
        return rarely_judged(self.each)

    def excuses(self, fault: Fault) -> bool:
        """Whether this one has the same fault on the same inputs, and its error is no smaller."""
        alike = (fault.check, fault.kind, repr(fault.case))
        return any(
            own.judgement is None or fault.judgement is None
            or own.judgement.ratio >= fault.judgement.ratio
            for own in self.faults
            if (own.check, own.kind, repr(own.case)) == alike
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Builtins alone."""
        return {
            "candidate": self.candidate,
            "status": self.status,
            "largest error / bar": self.ratio,
            "calls judged": self.judged,
            "share judged": self.shares / max(self.judged, 1),
            "judged too rarely": self.rarely,
            "calls that would expose a wrong result": self.telling,
            "gradient judged": self.gradient,
            "faults": [
                {"check": f.check, "kind": f.kind, "headline": f.headline, **f.details}
                for f in self.faults
            ],
            "broken": self.broken,
            "notes": self.notes,
            "times": dict(self.times),
        }
