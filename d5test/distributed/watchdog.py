"""Tells the sentry where this rank's main thread is, and how long it may stay there.

Requirements: started before MPI is, for nothing forks below MPI; the sentry knows at any moment
what the rank does, and within a quarter of a second where, unless a call holds the GIL; a
call that leaves Python at once is told before. So is a call of C that goes on long after another
rank has left the test: no notice reaches it. What is told costs microseconds; a sentry that is
gone is no error.
"""

import json
import linecache
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

SENTRY = Path(__file__).with_name("sentry.py")
FIRST, LONGEST = 0.005, 0.25
"""Seconds from a change to the first look at the main thread, and between looks at most."""
UNMOVED, HUNG = 1.0, 10.0
"""Seconds in one call after which it is asked whether another rank has left, and seconds that it
may go on then: in a wait of MPI's own, say."""
LONG = 300
"""Characters of a word to the sentry: a pipe takes 4096 bytes at once, or a part of them."""
LEAVING = {"_exit": ("status",), "abort": (), "kill": ("pid", "signal")}
"""Functions of `os` after which nothing can be told any more, and their parameters."""


class Watchdog:
    """The end of a pipe to the sentry, and a thread that looks where the main thread stands."""

    def __init__(self, rank: int) -> None:
        theirs, self._pipe = os.pipe()
        command = [sys.executable, "-I", "-S", str(SENTRY), str(theirs)]
        self._sentry = subprocess.Popen(
            command, pass_fds=(theirs,), start_new_session=True, stdin=subprocess.DEVNULL
        )
        os.close(theirs)
        self._pid, self._main = os.getpid(), threading.get_ident()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._looking = True
        self._left: Callable[[], int | None] = lambda: None
        self._file, self._stage = "", 0
        self._own: dict[str, Callable[..., Any]] = {}
        os.register_at_fork(after_in_child=self._forget)
        self._tell(rank=rank, pid=self._pid)

    def start(
        self, folder: str, *, supervised: bool, left: Callable[[], int | None] | None = None
    ) -> None:
        """Begin to look. `folder`: see `sentry`; `supervised`: somebody else tells the story.

        `left` says which rank has left the test, if one has; another thread calls it.
        """
        self._left = left or self._left
        self._tell(folder=folder, supervised=supervised)
        for name in LEAVING:
            self._own[name] = getattr(os, name)
            setattr(os, name, self._told(name))
        self._thread = threading.Thread(target=self._look, name="d5test watchdog", daemon=True)
        self._thread.start()

    def enter(
        self,
        doing: str,
        limit: float | None,
        at: str,
        file: str = "",
        *,
        idle: float | None = None,
        waiting: bool = False,
    ) -> None:
        """The main thread does something else now, in `file` if it moves at all.

        For `limit`, `idle` and `waiting` see `sentry`.
        """
        self._file, self._stage = file, self._stage + 1
        known = {"doing": doing[:LONG], "at": at[:LONG], "leaving": None, "left": None}
        self._tell(**known, limit=limit, idle=idle, waiting=waiting, stage=self._stage)
        self._changed.set()

    def end(self, limit: float) -> None:
        """The run has ended; the process should within `limit` seconds.

        The thread has to be gone by then: an interpreter that ends unwinds the threads that it
        finds, through whatever C++ they stand in.
        """
        self._looking = False
        self._changed.set()
        if self._thread is not None:
            self._thread.join()
        for name, own in self._own.items():
            setattr(os, name, own)
        self.enter("end of the run", limit, "the end of the run")
        self._tell(done=True)

    def _told(self, name: str) -> Callable[..., Any]:
        own = self._own[name]

        def call(*args: Any, **kwargs: Any) -> Any:
            target = {"pid": self._pid, **dict(zip(LEAVING[name], args, strict=False)), **kwargs}
            if os.getpid() == self._pid == target["pid"] and target.get("signal") != 0:
                at = position(sys._getframe(1), self._file)  # noqa: SLF001 - there is no other way
                self._tell(leaving=f"os.{name}", at=at)
            return own(*args, **kwargs)

        return call

    def _look(self) -> None:
        self._tell(eye=threading.get_native_id())
        pause, seen, call, beats = FIRST, "", Call(), 0
        while self._looking and self._pipe >= 0:
            if self._changed.wait(pause):
                self._changed.clear()
                pause, seen, call = FIRST, "", Call()
                continue
            pause, beats = min(2 * pause, LONGEST), beats + 1
            self._tell(beat=beats)
            file, stage = self._file, self._stage
            frame = sys._current_frames().get(self._main)  # noqa: SLF001
            if not file or frame is None:
                continue
            at, gone = position(frame, file), call.hung(frame, self._left)
            if at != seen and not self._changed.is_set():
                seen = at
                self._tell(at=at, stage=stage)
            if gone is not None:
                self._tell(left=gone, stage=stage)
        self._tell(beat=None)

    def _tell(self, **what: Any) -> None:
        if self._pipe < 0:
            return
        try:
            os.write(self._pipe, json.dumps(what).encode() + b"\n")
        except OSError:
            self._forget()

    def _forget(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


class Call:
    """The call in which a thread is, as long as it is the same."""

    def __init__(self) -> None:
        self._spot, self._since = (0, 0), time.monotonic()
        self._gone: tuple[int, float] | None = None

    def hung(self, frame: FrameType, left: Callable[[], int | None]) -> int | None:
        """The rank that has left while this call went on, too long ago."""
        now, spot = time.monotonic(), (id(frame), frame.f_lasti)
        if spot != self._spot:
            self._spot, self._since, self._gone = spot, now, None
        elif self._gone is None and now > self._since + UNMOVED:
            rank = left()
            self._gone = None if rank is None else (rank, now)
        elif self._gone is not None and now > self._gone[1] + HUNG:
            return self._gone[0]
        return None


def position(frame: FrameType, file: str) -> str:
    """`file:line in function: source`: of the innermost frame in `file`, and of all shown ones."""
    while "__tracebackhide__" in frame.f_code.co_varnames and frame.f_back is not None:
        frame = frame.f_back
    inside, innermost = frame, frame
    while inside.f_code.co_filename != file and inside.f_back is not None:
        inside = inside.f_back
    if inside.f_code.co_filename != file or inside is innermost:
        return _line(innermost)
    return f"{_line(inside)}, in {_line(innermost)}"


def _line(frame: FrameType) -> str:
    # between two lines of a function a frame has no number
    name, line = frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno
    source = linecache.getline(name, line).strip()[:LONG]
    return f"{os.path.relpath(name)}:{line} in {frame.f_code.co_name}: {source}"
