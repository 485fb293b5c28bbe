"""Two runs compared: their records read, matched, and called better, same, worse or unsure."""

from d5test.compare.comparison import Comparison, compare
from d5test.compare.decision import Decision
from d5test.compare.numbers import Unreadable
from d5test.compare.reading import Run, read, read_sides

__all__ = ["Comparison", "Decision", "Run", "Unreadable", "compare", "read", "read_sides"]
