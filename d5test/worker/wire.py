"""Messages between d5test and a worker: one pickle behind a head, on a stream socket.

A message holds builtins and arrays, nothing else: the reader refuses every class, so that nothing
can be made to run by what arrives. An array travels as its dtype's name, NumPy's code of that
dtype, its shape and its bytes, so that both sides may have different NumPy; bfloat16 travels as
its bits in uint16. Runs under any interpreter that a framework needs: NumPy only.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import bits

MAGIC = b"\xd5d5\0"
HEAD = struct.Struct(f"<{len(MAGIC)}sQ")
"""Before each message: a mark, since a framework's stray bytes are no length, and its bytes."""
CHUNK = 1 << 16
LARGEST = 1 << 36
"""Bytes of a message that may be announced."""
MOST = 1 << 20
"""Opcodes of a message: each may make an object, and arrays are two dozen each."""
FIXED = {
    **dict.fromkeys(b"N\x88\x89", 0),  # None, True, False
    **dict.fromkeys(b")]}\x8f(\x85\x86\x87taesu\x90\x91", 0),  # containers
    **dict(zip(b"KMJG", (1, 2, 4, 8), strict=True)),  # numbers
    **dict(zip(b"\x94hj", (0, 1, 4), strict=True)),  # the memo
    **dict(zip(b"Q\x80\x95.", (0, 1, 8, 0), strict=True)),  # an array; begin, frame, end
}
"""Opcodes that `dumps` writes, with the bytes of their argument."""
COUNTED = {0x8C: 1, ord("X"): 4, 0x8D: 8, ord("C"): 1, ord("B"): 4, 0x8E: 8, 0x8A: 1}
"""Likewise of those whose argument says its length first: texts, bytes and large integers."""


class Closed(Exception):
    """The other side has closed its end."""


class Garbled(Exception):
    """What arrived is no message of ours."""


class Bits(NamedTuple):
    """An array as it travels, and the name of the dtype that its bits stand for."""

    array: NDArray[Any]
    dtype: str

    def same(self, other: Bits) -> bool:
        """Whether both have the same dtype, shape and bits."""
        return (
            self.dtype == other.dtype
            and self.array.shape == other.array.shape
            and self.array.dtype == other.array.dtype
            and self.array.tobytes() == other.array.tobytes()
        )


Arrive = Callable[[Bits], Any]
"""What a side makes of an array that arrives; its memory belongs to the message, read-only."""


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            value = bits(value)
        elif kind is not Bits:
            return None
        array, name = value
        return name, array.dtype.str, array.shape, array.tobytes()


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrive: Arrive) -> None:
        super().__init__(file)
        self._arrive = arrive

    def find_class(self, module: str, name: str) -> Any:
        raise Garbled(f"a message holds {module}.{name}, and may hold builtins and arrays only")

    def persistent_load(self, array: Any) -> Any:
        name, code, shape, content = array
        return self._arrive(Bits(np.frombuffer(content, code).reshape(shape), name))


def dumps(message: Any) -> bytes:
    """The message as bytes. Anything but builtins and arrays is refused by who reads it."""
    file = io.BytesIO()
    _Writer(file, protocol=4).dump(message)
    return file.getvalue()


def loads(content: bytes | bytearray, arrive: Arrive) -> Any:
    """The message in these bytes. Raises `Garbled`."""
    _examine(content)
    try:
        return _Reader(io.BytesIO(content), arrive).load()
    except Garbled:
        raise
    except Exception as error:
        raise Garbled(f"{type(error).__name__}: {error}") from error


def _examine(content: bytes | bytearray) -> None:
    """Raise `Garbled` unless these are opcodes of ours: others make memory of a number alone."""
    at, end, count = 0, len(content), 0
    while at < end:
        code, at, count = content[at], at + 1, count + 1
        if code in FIXED:
            at += FIXED[code]
        elif code in COUNTED:
            at += COUNTED[code] + int.from_bytes(content[at : at + COUNTED[code]], "little")
        else:
            raise Garbled(f"opcode {code:#x}: a message may hold builtins and arrays only")
        if at > end or count > MOST:
            raise Garbled("it is longer than was announced" if at > end else "too many objects")


def send(connection: socket.socket, message: Any) -> None:
    """Send a message. Raises `Closed`, or TimeoutError after the socket's timeout."""
    send_bytes(connection, dumps(message))


def send_bytes(connection: socket.socket, content: bytes) -> None:
    """As `send`, of what `dumps` made."""
    try:
        connection.sendall(HEAD.pack(MAGIC, len(content)) + content)
    except (BrokenPipeError, ConnectionError) as error:
        raise Closed from error


def receive(connection: socket.socket, arrive: Arrive, seconds: float | None = None) -> Any:
    """The next message, within `seconds`. Raises `Closed`, `Garbled` or TimeoutError.

    Each side answers before the other asks again: whatever arrives belongs to one message.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    content, part = bytearray(), memoryview(bytearray(CHUNK))
    while len(content) < HEAD.size:
        content += part[: _receive_into(connection, part, deadline)]
        if not MAGIC.startswith(content[: len(MAGIC)]):  # at once: what is no message may not end
            raise Garbled(f"it begins with {bytes(content[: len(MAGIC)])!r}")
    _, length = HEAD.unpack_from(content)
    if length > LARGEST:
        raise Garbled(f"a message of {length} bytes was announced")
    del content[: HEAD.size]
    have = len(content)
    if have > length:
        raise Garbled(f"{have} bytes arrived where {length} were announced")
    while have < length:
        # room for as much again as has arrived: an announcement alone takes no memory
        content.extend(bytes(min(length - have, max(have, CHUNK))))
        with memoryview(content) as whole:
            while have < len(whole):
                have += _receive_into(connection, whole[have:], deadline)
    return loads(content, arrive)


def _receive_into(connection: socket.socket, room: memoryview, deadline: float | None) -> int:
    """How many bytes have arrived in `room`: at least one."""
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise TimeoutError
    connection.settimeout(left)
    try:
        count = connection.recv_into(room)
    except ConnectionError as error:
        raise Closed from error
    if not count:
        raise Closed
    return count
