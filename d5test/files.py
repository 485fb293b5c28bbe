"""Files that are written whole or not at all.

Requirements: whatever ends the writing (a full disk, a signal, an exception), the file of before
is still there, byte for byte, and what was begun is not; what is read is bounded.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE
from typing import IO


def replace(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Let a file hold this, text as UTF-8. Raises OSError."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file, which takes the place of the one at `path` once all of it is on the disk.

    A link stays a link; what is no regular file (`/dev/stdout`, a pipe) is written to. Raises
    OSError with the name of `path`.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        part = target.with_name(f".d5test-{secrets.token_hex(8)}.part")
        try:
            with part.open("xb") as file:
                if target.exists():
                    os.fchmod(file.fileno(), S_IMODE(target.stat().st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error
