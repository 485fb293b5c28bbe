"""Two runs compared: their records read, matched, and decided metric by metric.

reading      runs from files; `condensed` without rounds, `numbers` looked up and checked
entry        one benchmark of a file; `environment`: where runs were made
decision     one metric: better, same, worse, unsure or accepted, by what is beyond the `noise`
comparison   all of them, and the verdict: passed, regressed or unsure
output       a comparison as text, Markdown and JSON
"""

from d5test.compare.comparison import Comparison, compare
from d5test.compare.decision import Decision
from d5test.compare.numbers import Unreadable
from d5test.compare.reading import Run, read, read_sides

__all__ = ["Comparison", "Decision", "Run", "Unreadable", "compare", "read", "read_sides"]
