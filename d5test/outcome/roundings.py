"""How the results of a cell are rounded, gathered while its cases are judged one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from d5test.case import Case
from d5test.numerics.rounding import Rounding
from d5test.reference.operators.broadcasting import Broadcasting

PLENTY = 16
"""Elements against a direction that show it well enough: of such cases the smallest is shown."""


@dataclass
class Roundings:
    """Of all cases of a cell.

    cases  how many told something
    total  what they tell together
    shown  for each direction the case that shows it best
    parts  the same of those whose operands broadcast, and of those whose operands have one shape:
           a framework has another loop for each
    """

    cases: int = 0
    total: Rounding = field(default_factory=Rounding)
    shown: dict[str, tuple[tuple[int, int], Case]] = field(default_factory=dict)
    parts: dict[str, Roundings] = field(default_factory=dict)

    def add(self, judgement: Any, case: Case) -> None:
        """One more case that is right."""
        self.count(judgement.rounding, case)
        if part := _part(case):
            self.parts.setdefault(part, Roundings()).count(judgement.rounding, case)

    def count(self, rounding: Rounding, case: Case) -> None:
        """The same, without the parts."""
        if not rounding.elements:
            return
        self.cases += 1
        self.total += rounding
        for name, way in rounding.ways.items():
            if way.followed and way.explains:
                size = sum(prod(shape or ()) for shape in case.shapes)
                worth = (min(way.seen, PLENTY), -size)
                if name not in self.shown or worth > self.shown[name][0]:
                    self.shown[name] = worth, case


def _part(case: Case) -> str:
    """Which part of the cases of an operator that broadcasts this one belongs to."""
    shapes = {shape for shape in case.shapes if shape is not None}
    if not isinstance(case.op, Broadcasting) or len(case.shapes) < 2:
        return ""
    return "of operands that broadcast" if len(shapes) > 1 else "of operands of one shape"
