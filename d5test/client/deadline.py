"""How long an answer is waited for: seconds in which the worker could run.

A deadline by the clock alone accuses a compiler that shares its core with nine other processes.
So the seconds in which the worker, or a process that it started, was ready to run and had no core
are not counted; nor are those in which the machine had too little memory, and processes waited for
pages that had been taken from them. What sleeps, waits or loops for ever gets no extension on a
quiet machine.
"""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

PART = 1 / 6
"""Of the seconds: how often it is looked at whether the worker runs. The first part is not
counted; no quick answer is slowed."""
LONGEST = 10
"""Times as long, by the clock, whatever the machine does."""
PRESSURE = Path("/proc/pressure/memory")


def await_answer(connection: socket.socket, process: int, seconds: float) -> None:
    """Return when something arrives, or the other side is closed. Raises TimeoutError."""
    start, part = time.monotonic(), PART * seconds
    if arrives(connection, part):
        return
    starved, before, pressed = 0.0, dict(waits(process)), stalled()
    while True:
        elapsed = time.monotonic() - start
        left = min(seconds + starved, LONGEST * seconds) - elapsed
        if left <= 0:
            raise TimeoutError
        if arrives(connection, min(left, part)):
            return
        now, pressing = dict(waits(process)), stalled()
        starved += max((now[task] - before.get(task, 0.0) for task in now), default=0.0)
        starved += pressing - pressed
        before, pressed = now, pressing


def arrives(connection: socket.socket, seconds: float) -> bool:
    """Whether something arrives, or the other side closes, within `seconds`."""
    connection.settimeout(seconds)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def waits(process: int) -> Iterator[tuple[str, float]]:
    """By thread of a process and of those below it, seconds spent ready to run without a core.

    Nothing where the system does not tell: Linux does, `Documentation/scheduler/sched-stats.rst`.
    """
    with suppress(psutil.Error):
        below = psutil.Process(process).children(recursive=True)
        for number in (process, *(child.pid for child in below)):
            for task in Path(f"/proc/{number}/task").glob("*/schedstat"):
                with suppress(OSError):
                    _, waited, _ = task.read_text().split()
                    yield str(task), int(waited) * 1e-9


def stalled() -> float:
    """Seconds since the start in which processes waited for memory, of the whole machine.

    0 where the system does not tell: Linux does, `Documentation/accounting/psi.rst`.
    """
    with suppress(OSError):
        total = re.search(r"some .*total=(\d+)", PRESSURE.read_text())
        return int(total[1]) * 1e-6 if total else 0.0
    return 0.0
