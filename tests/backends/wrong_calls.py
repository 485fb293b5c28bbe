"""A backend whose one operator does whatever goes wrong in a framework."""

import ctypes
import os
import sys
import time
from typing import Any

import numpy as np
from tiny import Tiny, rows

from d5test.backends.base import Row, Table, Unsupported


def many_lines(x: Any) -> Any:
    for i in range(2000):
        print("\x80 garbage", i)
        print("\x80 more garbage", i, file=sys.stderr)
    os.write(1, bytes(range(256)))
    return x + 1


def overwrite(x: Any) -> Any:
    y = np.copy(x)
    x.flat[0] = 7
    return y


def raise_it(error: BaseException) -> Any:
    raise error


kept = np.zeros(3, np.float32)


def same_buffer(x: Any) -> Any:
    kept[...] = x
    return kept


def close_all(x: Any) -> Any:
    os.closerange(3, 256)
    time.sleep(60)


def many_children(x: Any) -> Any:
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print("child", child)
    os.abort()


def many_sessions(x: Any) -> Any:
    """A child in a session of its own, and a daemon: its parent has ended."""
    for daemon in (False, True):
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if daemon and os.fork() > 0:
                os._exit(0)
            os.write(write, f"child {os.getpid()}\n".encode())
            time.sleep(60)
        print(os.read(read, 80).decode(), end="")
    return x


DEEDS = {
    "sessions": many_sessions,
    "sessions, abort": lambda x: (many_sessions(x), os.abort()),
    "abort": lambda _: os.abort(),
    "segfault": lambda _: ctypes.string_at(0),
    "sleep": lambda _: time.sleep(60),
    "loop": lambda _: sum(range(10**12)),
    "exit": lambda _: os._exit(3),
    "system exit": lambda _: sys.exit(4),
    "print": many_lines,
    "close": close_all,
    "children": many_children,
    "raise": lambda _: raise_it(ValueError("no such shape")),
    "unsupported": lambda _: raise_it(Unsupported("not for this shape")),
    "none": lambda _: None,
    "number": lambda x: float(x.sum()),
    "nested": lambda x: (x, [x]),
    "two": lambda x: (x, x + 1),
    "overwrite": overwrite,
    "same buffer": same_buffer,
    "threads": lambda _: np.array([float(os.environ.get("OMP_NUM_THREADS", 0))], np.float32),
    "modules": lambda _: np.array(["hypothesis" in sys.modules], np.float32),
}


def act(op: Any, x: Any) -> Any:
    return DEEDS[op.deed](x)


def slow(op: Any, x: Any) -> Any:
    time.sleep(0.6)
    return x


class Wrong(Tiny):
    rows = Table({**rows, "Act": Row(act, outputs=1), "Slow": Row(slow, outputs=1)})

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        return function(*inputs), []


class WrongGet(Tiny):
    def get(self, tensor: Any) -> Any:
        raise RuntimeError("the copy failed")


class OtherStream(Tiny):
    """What a call leaves on another stream is done when the device is waited for."""

    def compile(self, function: Any) -> Any:
        def call(*inputs: Any) -> Any:
            self.late = function(*inputs)
            self.result = np.zeros_like(self.late)
            return self.result

        return call

    def wait(self, tensors: Any) -> None:
        self.result[...] = self.late

    def wait_to_read(self, tensors: Any) -> None:
        """There is nothing on the caller's stream."""


class Gone(Exception):
    """What a GPU says at every call after an illegal address."""


class WrongAddress(Wrong):
    """The call named `raise` loses the device, which is noticed by whoever waits for it."""

    gone = False

    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        self.wait(())
        return super().put(array, dtype, layout)

    def wait(self, tensors: Any) -> None:
        if self.gone:
            raise Gone("illegal address")

    def lost(self, error: Exception) -> bool:
        return isinstance(error, Gone)

    def compile(self, function: Any) -> Any:
        def call(x: Any, *others: Any) -> Any:
            self.gone = x[0] < 0
            return function(x, *others)

        return call


class WrongStart(Tiny):
    def __init__(self, device: str = "cpu") -> None:
        raise RuntimeError(f"no device {device}")


def hang(backend: Any) -> None:
    """Holds the interpreter in C."""
    sum(range(10**12))
