"""A report for a pull request: its verdict is the first line."""

from __future__ import annotations

from d5test.compare import output
from d5test.report import table
from d5test.report.content import Report


def markdown(report: Report) -> str:
    """What `d5test compare` writes; of one version alone its first rows."""
    if report.comparison is not None:
        return output.markdown(report.comparison)
    cells = [row.cells for row in table.first(report)]
    return f"**{output.safe(report.headline)}**\n\n{output.grid(table.columns(report), cells)}"
