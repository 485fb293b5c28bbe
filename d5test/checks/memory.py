"""How much memory there is, and what does not fit into it."""

from pathlib import Path

from d5test.backends.base import Unsupported
from d5test.case import Case

MEMORY = Path("/proc/meminfo")


def bytes_available() -> int | None:
    """What the system can give; `None` where it does not say."""
    if not MEMORY.exists():
        return None
    (line,) = (row for row in MEMORY.read_text().splitlines() if row.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


def require(needed: int, share: float, case: Case, what: str = "") -> None:
    """Raise `Unsupported` where a case needs more than a share of the memory that there is."""
    there = bytes_available()
    if there is not None and needed > share * there:
        size, room = (f"{number / 2**30:.1f} GiB" for number in (needed, share * there))
        raise Unsupported(
            f"{case.op.name}{what} needs {size} of memory, {room} are there: {case!r}"
        )
