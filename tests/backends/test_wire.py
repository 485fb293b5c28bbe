"""Messages arrive as they left, and nothing else arrives."""

import os
import pickle
import socket
import threading
import tracemalloc
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
    theirs.sendall(wire.HEAD.pack(wire.MAGIC, 16) + b"half")
    theirs.close()
    with pytest.raises(wire.Closed):
        wire.receive(ours, typed, 5)


def test_a_length_that_cannot_be_is_garbled(pair: Any) -> None:
    ours, theirs = pair
    theirs.sendall(wire.HEAD.pack(wire.MAGIC, 3) + b"garbage on the connection")
    with pytest.raises(wire.Garbled, match="25 bytes arrived where 3 were announced"):
        wire.receive(ours, typed, 5)


@pytest.mark.parametrize("stray", [b"\n", b"abc", b"\xd5d6", pickle.dumps(None), b"\0" * 4000])
def test_stray_bytes_are_garbled_at_once(pair: Any, stray: bytes) -> None:
    """Whoever waits for the rest of them waits for ever: nothing more is sent here."""
    ours, theirs = pair
    theirs.sendall(stray)
    with pytest.raises(wire.Garbled, match="it begins with"):
        wire.receive(ours, typed)


@pytest.mark.parametrize("length", [6 << 30, 1 << 36, (1 << 36) + 1, (1 << 64) - 1])
def test_an_announcement_takes_no_memory(pair: Any, length: int) -> None:
    ours, theirs = pair
    theirs.sendall(wire.HEAD.pack(wire.MAGIC, length) + b"half")
    theirs.close()
    tracemalloc.start()
    with pytest.raises((wire.Closed, wire.Garbled)):
        wire.receive(ours, typed, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


BOMBS = {
    "a memo of 2^28": b"\x80\x04Nr\xff\xff\xff\x0f.",
    "a memo by name": b"\x80\x04Np268435455\n.",
    "bytes of 2^40": b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b".",
    "a bytearray of 2^40": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",
    "text of 2^40": b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b".",
    "an integer of 2^31 bytes": b"\x80\x04\x8b\xff\xff\xff\x7f.",
    "two million lists": b"\x80\x04(" + b"]" * 2_000_000 + b"l.",
    "a shape of 2^40": wire.dumps((ARRAYS[3],)).replace(b"K\x02", b"J\xff\xff\xff\x7f"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_few_bytes_take_no_memory(bomb: str) -> None:
    tracemalloc.start()
    with pytest.raises(wire.Garbled):
        wire.loads(BOMBS[bomb], typed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20
