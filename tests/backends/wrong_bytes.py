"""A backend whose import writes into every socket that it finds, and does not end then."""

import os
import pickle
import socket
import struct
import time
from contextlib import suppress

from tiny import Tiny  # noqa: F401

MARK = b"\xd5d5\0"
CONTENT = pickle.dumps(None, 4)
WRITTEN = {
    "abc": b"abc",
    "None": struct.pack("<Q", len(CONTENT)) + CONTENT,
    "an answer": struct.pack("<4sQ", MARK, len(CONTENT)) + CONTENT,
}[os.environ["D5TEST_WRITTEN"]]

for fd in range(3, 64):
    with suppress(OSError):
        socket.socket(fileno=os.dup(fd)).send(WRITTEN)
time.sleep(60)
