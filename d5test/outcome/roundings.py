"""How the results of a cell are rounded, gathered while its cases are judged one by one."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from d5test.case import Case
from d5test.numerics.rounding import Rounding

PLENTY = 16
"""Elements against a direction that show it well enough: of such cases the smallest is shown."""


@dataclass
class Roundings:
    """Of all cases of a cell.

    cases  how many told something
    total  what they tell together
    shown  for each direction the case that shows it best
    """

    cases: int = 0
    total: Rounding = field(default_factory=Rounding)
    shown: dict[str, tuple[tuple[int, int], Case]] = field(default_factory=dict)

    def add(self, judgement: Any, case: Case) -> None:
        """One more case that is right."""
        rounding: Rounding = judgement.rounding
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
