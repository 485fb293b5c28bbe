"""A worker that has no core, or no memory, is waited for; one that sleeps is not."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from d5test.client import deadline as patience
from d5test.client.deadline import await_answer

ANSWERS = """
import os, socket, sys, time
core, after = int(sys.argv[1]), sys.argv[2]
os.sched_setaffinity(0, [core])
connection = socket.socket(fileno=int(sys.argv[3]))
if after == "sleep":
    time.sleep(60)
while time.process_time() < float(after):
    pass
connection.send(b"x")
time.sleep(60)
"""
BUSY = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the system does not tell who waits"
)


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    """What runs beside a test, and ends with it."""
    with ExitStack() as stack:
        yield stack


def started(crowd: ExitStack, *command: str, keep: int | None = None) -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", *command], pass_fds=() if keep is None else (keep,)
    )
    crowd.enter_context(process)
    crowd.callback(process.kill)
    return process.pid


def asked(crowd: ExitStack, core: int, after: str) -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair()
    crowd.enter_context(ours)
    with theirs:
        number = theirs.fileno()
        return ours, started(crowd, ANSWERS, str(core), after, str(number), keep=number)


@pytest.mark.nightly
def test_a_worker_without_a_core_is_waited_for(crowd: ExitStack) -> None:
    core = max(os.sched_getaffinity(0))
    for _ in range(4):
        started(crowd, BUSY, str(core))
    connection, process = asked(crowd, core, "1.0")
    await_answer(connection, process, 2.0)
    assert connection.recv(1) == b"x"


def test_a_worker_that_sleeps_is_not(crowd: ExitStack) -> None:
    connection, process = asked(crowd, max(os.sched_getaffinity(0)), "sleep")
    with pytest.raises(TimeoutError):
        await_answer(connection, process, 0.5)


@pytest.mark.nightly
def test_who_waits_for_memory_is_waited_for(
    crowd: ExitStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The machine says of each look that half of the time was spent on pages."""
    totals = iter(range(0, 10**9, 125_000))
    pressure = tmp_path / "memory"

    def read(path: Path) -> str:
        assert path == pressure
        return f"some avg10=9.0 avg60=1.0 avg300=0.1 total={next(totals)}\nfull total=7\n"

    monkeypatch.setattr(patience, "PRESSURE", pressure)
    connection, process = asked(crowd, max(os.sched_getaffinity(0)), "sleep")
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(patience, "waits", lambda process: iter(()))
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        await_answer(connection, process, 1.5)
    assert time.monotonic() - begun > 2.5


@pytest.mark.parametrize("text", [None, "", "full avg10=0.00 total=12\n"])
def test_a_machine_that_does_not_tell_of_memory_has_enough(
    text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pressure = tmp_path / "memory"
    if text is not None:
        pressure.write_text(text)
    monkeypatch.setattr(patience, "PRESSURE", pressure)
    assert patience.stalled() == 0.0


def test_the_end_of_a_worker_is_an_answer(crowd: ExitStack) -> None:
    ours, theirs = socket.socketpair()
    crowd.enter_context(ours)
    theirs.close()
    await_answer(ours, os.getpid(), 60.0)
    assert ours.recv(1) == b""
