"""Who does nothing, and who only seems to: a rank at work is never accused."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, repeat
from typing import Any

import pytest

from d5test.distributed import sentry
from tests.nightly import at_night

BUSY = [sys.executable, "-S", "-c", "while True: pass"]
PARENT = f"import subprocess; subprocess.call({BUSY!r})"
THREAD = """
import threading
def work():
    while True: pass
threading.Thread(target=work).start()
"""
POLLS = "import time\nwhile True: time.sleep(0.001)"
READS = "import time\nwhile True: open('/proc/self/stat').read(); time.sleep(0.5)"


BEATS = """
import os, threading, time
def beat():
    pipe = os.pipe()
    print(threading.get_native_id(), flush=True)
    while True:
        os.write(pipe[1], b"beat"); os.read(pipe[0], 4); time.sleep(0.01)
threading.Thread(target=beat).start()
time.sleep(60)
"""


@contextmanager
def child(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with all that it starts, ended at the end."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def looked(
    process: subprocess.Popen[bytes], limit: float | None, seconds: float, beats: Any = None
) -> str:
    """What comes of looking at a process for so long, or until it has to be killed."""
    idleness, end, why = sentry.Idleness(limit), time.monotonic() + seconds, ""
    beats = beats or repeat(None)
    while time.monotonic() < end and process.poll() is None and not why:
        time.sleep(0.05)
        why = idleness.look({"pid": process.pid, "beat": next(beats)})
    return why


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentry, "LOOK", 0.2)
    monkeypatch.setattr(sentry, "STOPPED", 1.5)


@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(600)", "import time\nwhile True: time.sleep(1)"],
    ids=["once", "again"],
)
@pytest.mark.usefixtures("often")
def test_who_sleeps_is_sent_an_alarm(program: str) -> None:
    with child(sys.executable, "-S", "-c", program) as process:
        assert looked(process, 1.5, 20) == ""
        assert process.wait(1) == -signal.SIGALRM


@pytest.mark.usefixtures("often")
def test_who_sleeps_on_has_to_be_killed() -> None:
    with child("sh", "-c", "trap '' ALRM; exec sleep 600") as process:
        assert looked(process, 1.5, 20) == "nothing was done for 1.5 s"
        assert process.poll() is None


@pytest.mark.parametrize(
    "command",
    [
        at_night(BUSY),
        at_night([sys.executable, "-S", "-c", PARENT]),
        at_night([sys.executable, "-S", "-c", THREAD]),
        [sys.executable, "-S", "-c", POLLS],
        at_night([sys.executable, "-S", "-c", READS]),
    ],
    ids=["computes", "child", "thread", "polls", "reads"],
)
@pytest.mark.usefixtures("often")
def test_who_works_or_polls_is_let_alone(command: list[str]) -> None:
    with child(*command) as process:
        assert looked(process, 1.5, 5) == ""
        assert process.poll() is None


@pytest.mark.usefixtures("often")
def test_a_call_that_holds_the_gil_and_does_nothing_has_to_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentry, "HELD", 1.5)
    said = "a call that holds the GIL did nothing for 1.5 s"
    with child("sleep", "600") as process:
        assert looked(process, None, 4, beats=count()) == ""
        assert looked(process, None, 20, beats=repeat(7)) == said
    with child(*BUSY) as process:
        assert looked(process, None, 4, beats=repeat(7)) == ""


def seen(waited: float, state: str = "S", read: int = 7) -> sentry.Seen:
    return sentry.Seen(state, state in "Dt", {"1": 3.0}, {"1": waited}, {1: f"rchar: {read}"})


SEEN = {
    "asleep": (lambda second: seen(5.0), 4),
    "waits for a core": (lambda second: seen(5.0 + second), None),
    "waits for a core half the time": (lambda second: seen(5.0 + second / 2), 8),
    "waits for a disk": (lambda second: seen(5.0, "D"), None),
    "is debugged": (lambda second: seen(5.0, "t"), None),
    "is stopped": (lambda second: seen(5.0, "T"), 4),
    "reads": (lambda second: seen(5.0, read=second), None),
}


@pytest.mark.parametrize("doing", SEEN)
def test_seconds_count_in_which_it_could_have_done_something(
    monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    """A look a second, for thirty of them; it may do nothing for four."""
    found, want = SEEN[doing]
    now, sent = 100.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(sentry.os, "kill", lambda *given: sent.append(given))
    idleness, ends = sentry.Idleness(4.0), None
    for second in range(31):
        now = 101.0 + second
        monkeypatch.setattr(sentry, "see", lambda pid, eye, second=second: found(second))
        if idleness.look({"pid": 1}) or sent:
            ends = second
            break
    assert ends == want


def test_a_sentry_that_was_stopped_itself_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent = 100.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(sentry.os, "kill", lambda *given: sent.append(given))
    monkeypatch.setattr(sentry, "see", lambda pid, eye: seen(5.0))
    idleness = sentry.Idleness(4.0)
    for later in (101.0, 102.0, 1000.0):
        now = later
        assert idleness.look({"pid": 1}) == ""
    assert sent == []


@pytest.mark.usefixtures("often")
def test_who_is_stopped_has_to_be_killed_and_who_sleeps_may() -> None:
    with child("sleep", "600") as process:
        assert looked(process, None, 3) == ""
        process.send_signal(signal.SIGSTOP)
        assert looked(process, None, 20) == "stopped for 1.5 s"


@pytest.mark.usefixtures("often")
def test_what_a_rank_does_is_not_what_its_sentry_does() -> None:
    assert os.getpid() not in sentry._family(os.getppid())


def test_nobody_is_accused_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentry, "LOOK", 0.0)

    def see(pid: int, eye: int | None) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(sentry, "see", see)
    with child("sleep", "600") as process:
        assert looked(process, 0.2, 1) == ""
        assert process.poll() is None


def test_what_the_watchdogs_own_thread_writes_is_not_the_ranks() -> None:
    command = [sys.executable, "-S", "-c", BEATS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            eye = int(process.stdout.readline())

            def moved(eye: int | None) -> list[dict[str, str]]:
                looks = []
                for _ in range(3):
                    looks.append(sentry.see(process.pid, eye).moved)
                    time.sleep(0.2)
                return looks[1:]

            first, second = moved(eye)
            assert first == second
            first, second = moved(None)
            assert first != second
        finally:
            process.kill()
