"""A reproducer run in the worker, where its framework is imported already.

Python's library alone, as all that a worker imports from here.
"""

from __future__ import annotations

import contextlib
import io
import runpy
from typing import Any


def run(backend: Any, path: str) -> tuple[int, str]:
    """The exit status of a reproducer, and what it printed. The worker is not fit for more."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    return 2, said.getvalue()
