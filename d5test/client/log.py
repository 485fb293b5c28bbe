"""What a worker prints: a file without a name, read from its end.

Without a name it cannot be left behind, however this process ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time

LINES = 40
MOST = 16 << 20
"""Bytes after which what was printed is forgotten: a framework may print with each call."""
STACK_SECONDS = 0.5
"""Seconds for a process to write where it stands."""


class Log:
    """The standard output and error of one worker after the other."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self.fd = self._file.fileno()
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_APPEND)

    def clear(self) -> None:
        """Forget what was printed."""
        os.ftruncate(self.fd, 0)

    def keep_small(self) -> None:
        """Forget what was printed if it is much."""
        if os.fstat(self.fd).st_size > MOST:
            self.clear()

    def tail(self, start: int = 0) -> str:
        """The last lines from byte `start` on."""
        end = os.fstat(self.fd).st_size
        start = max(start, end - 400 * LINES)
        text = os.pread(self.fd, end - start, start).decode(errors="replace")
        return "\n".join(text.splitlines()[-LINES:])

    def stack(self, process: int) -> str:
        """Where the threads of `process` are, which faulthandler writes when told to."""
        start = os.fstat(self.fd).st_size
        try:
            os.kill(process, signal.SIGUSR1)
        except ProcessLookupError:
            return ""
        deadline = time.monotonic() + STACK_SECONDS
        size = start
        while time.monotonic() < deadline:
            time.sleep(0.02)
            before, size = size, os.fstat(self.fd).st_size
            if size > start and size == before:
                break
        return self.tail(start)

    def close(self) -> None:
        """Give the file back to the system."""
        self._file.close()
