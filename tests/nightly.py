"""What is tested by day, and what at night alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(rows: Iterable[Any], every: int = 3) -> list[Any]:
    """The parameters of a test; one in `every` is tried by day, the others at night alone."""
    return [row if i % every == 0 else at_night(row) for i, row in enumerate(rows)]


def at_night(row: Any) -> Any:
    """A parameter of a test that is tried at night alone."""
    if hasattr(row, "marks"):  # it is pytest's own already
        return pytest.param(*row.values, id=row.id, marks=(*row.marks, pytest.mark.nightly))
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=pytest.mark.nightly)
