"""What the code of a stranger raised, told from what d5test or a library raised by itself."""

from __future__ import annotations

import re
import sys
import traceback
from functools import cache
from importlib.metadata import requires
from pathlib import Path


@cache
def ours() -> frozenset[str]:
    """Packages whose frames are nobody's schedule: d5test, Python's own, and those required."""
    required = (re.match(r"[\w-]+", line) for line in requires("d5test") or ())
    names = (found[0].replace("-", "_") for found in required if found)
    return frozenset({"d5test", *names, *sys.stdlib_module_names})


def raised(error: BaseException) -> str:
    """The exception and the stranger's innermost line; empty if none of the lines is a stranger's.

    >>> raised(error)
    "NameError: name 'size' is not defined, at mine.py:17 in ring"
    """
    frames = [
        (Path(frame.f_code.co_filename).name, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ours()
    ]
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{type(error).__name__}: {error}, at {file}:{line} in {function}"
