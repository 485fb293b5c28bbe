"""Messages arrive as they left, and nothing else arrives."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from d5test.client.messages import typed
from d5test.worker import wire


@pytest.fixture
def pair() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


ARRAYS = [
    np.arange(6, dtype=np.float64).reshape(2, 3).T,
    np.array(2.5, np.float16),
    np.zeros((0, 3), np.int8),
    np.array([True, False]),
    np.array([1 + 2j, np.nan], np.complex64),
    np.array([-0.0, np.inf, 3.140625], ml_dtypes.bfloat16),
    np.arange(12, dtype=">i4")[::-2],
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_an_array_keeps_dtype_shape_and_bits(array: Any) -> None:
    (back,) = wire.loads(wire.dumps((array,)), typed)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


def test_builtins_come_back_equal() -> None:
    message = {"a": (1, 2.5, None, True, "ä", b"\0"), "b": [[], {}, -(10**30)]}
    assert wire.loads(wire.dumps(message), typed) == message


@pytest.mark.parametrize("value", [os.system, ValueError("x"), np.float32(1), {1}.__class__])
def test_a_class_is_refused(value: Any) -> None:
    with pytest.raises(wire.Garbled, match="may hold builtins and arrays only"):
        wire.loads(wire.dumps((value,)), typed)


def test_code_does_not_run_when_it_arrives() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.putenv, ("D5TEST_TRAP", "1")

    with pytest.raises(wire.Garbled):
        wire.loads(pickle.dumps(Trap()), typed)


@pytest.mark.parametrize("content", [b"", b"garbage", wire.dumps((ARRAYS[0],))[:-20]])
def test_nonsense_is_garbled(content: bytes) -> None:
    with pytest.raises(wire.Garbled):
        wire.loads(content, typed)


@pytest.mark.parametrize("count", [1, 8185, 70_001, 3_000_017])
def test_any_length_travels(pair: Any, count: int) -> None:
    ours, theirs = pair
    sent = np.arange(count, dtype=np.uint8)
    thread = threading.Thread(target=wire.send, args=(theirs, [sent, "end"]))
    thread.start()
    back, end = wire.receive(ours, typed, 20)
    thread.join()
    assert end == "end"
    np.testing.assert_array_equal(back, sent)


def test_an_end_and_a_silence_are_told_apart(pair: Any) -> None:
    ours, theirs = pair
    with pytest.raises(TimeoutError):
        wire.receive(ours, typed, 0.05)
    theirs.sendall(b"\x10\0\0\0\0\0\0\0half")
    theirs.close()
    with pytest.raises(wire.Closed):
        wire.receive(ours, typed, 5)


def test_a_length_that_cannot_be_is_garbled(pair: Any) -> None:
    ours, theirs = pair
    theirs.sendall(b"garbage on the connection")
    with pytest.raises(wire.Garbled, match="announced"):
        wire.receive(ours, typed, 5)
