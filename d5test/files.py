"""Files that are written whole or not at all, and read within bounds.

Requirements: whatever ends the writing (a full disk, a signal, an exception), the file of before
is still there, byte for byte, and what was begun is not. What a stranger's file is made into takes
at most 512 MiB more than the file.
"""

import gzip
import json
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from stat import S_IMODE
from typing import IO, Any

BYTES = 384 << 20
"""What JSON may take as Python's objects, beside its text."""
COSTS = {b"[": 64, b"{": 240, b",": 64, b":": 64}
"""Bytes of memory for each of these in JSON's text, at most."""


class TooLarge(ValueError):
    """More would be made of a file than memory is given for."""


def folder_of_suites() -> Path:
    """Where the suites are: in the package when it is installed, beside it in a clone."""
    package = Path(__file__).resolve().parent
    inside = package / "suites"
    return inside if inside.is_dir() else package.parent / "suites"


def replace(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Let a file hold this; text as UTF-8, with escapes for what has no UTF-8. Raises OSError."""
    with replacing(path) as file:
        file.write(
            content.encode(errors="backslashreplace") if isinstance(content, str) else content
        )


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file, which takes the place of the one at `path` once all of it is on the disk.

    A link stays a link; what is not a regular file (`/dev/stdout`, a pipe) is written to. Raises
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


def unzipped(content: bytes, most: int) -> bytes:
    """What gzip made these bytes of. Raises `TooLarge`, or another ValueError if it did not."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as file:
            unpacked = file.read(most + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"not gzip: {error}") from None
    if len(unpacked) > most:
        raise TooLarge(f"larger than {most >> 20} MiB when unpacked")
    return unpacked


def parsed(text: bytes) -> Any:
    """What JSON's text says. Raises `TooLarge`, or another ValueError or RecursionError."""
    if len(text) + sum(cost * text.count(sign) for sign, cost in COSTS.items()) > BYTES:
        raise TooLarge(f"larger than {BYTES >> 20} MiB in memory")
    return json.loads(text)
