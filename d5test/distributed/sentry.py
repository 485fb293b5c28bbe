"""A process beside each rank: it reports how the rank ended when the rank itself cannot.

Requirements: a rank that is killed, that leaves Python without a word or that does not return from
a call is named, with its test and the line where it was seen last; so are all the other ranks,
which most launchers kill with it. So is a rank that is stopped, and where that is asked for one
that does nothing, long before its time is over; never one that works, or that waits in MPI, which
polls, or for a core, a disk, a process that it has started or a debugger. Where the system does
not tell who does nothing (Linux does), time alone counts. It outlives its rank by a second. It
knows nothing but the standard library, and runs with nothing else: `python -I -S sentry.py`.

It reads one JSON object a line. Each is laid over those before it, unless it comes too late:

    rank     the number of the rank, `pid` its process
    folder   where the sentries of one machine find each other
    doing    what the rank does: the id of a test and its phase
    stage    the number of what it does: what is said of an earlier one comes too late
    limit    seconds until it says something else; then the rank is killed. `null`: no limit
    idle     seconds in which it may do nothing; then it is sent SIGALRM, and killed if it goes on
             doing nothing. `null`: no limit, unless it is stopped
    waiting  whether it waits for the other ranks, and is not the one to blame
    at       where its main thread stands
    eye      a thread of it that does not count: the one that says all this
    beat     a number that this thread changes several times a second, unless a call holds the GIL.
             `null`: it does not
    left     the rank that has left what this one does, which hangs in a call; then it is killed
    leaving  the call by which it leaves Python
    done     that the run has ended: its end is not reported then, if it comes within `limit`
"""

import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ENDS = "ends.jsonl"
"""The file in `folder` to which each sentry adds how its rank ended."""
PAUSE = 0.2
"""Seconds between looks at what the rank has said."""
OTHERS = 0.6
"""Seconds for the sentries of the other ranks to add theirs."""
LOOK = 1.0
"""Seconds between looks at what the rank does."""
STOPPED = 12.0
"""Seconds that a rank may be stopped (SIGSTOP), which no healthy one is."""
HELD = 20.0
"""Seconds that a call may do nothing while it holds the GIL: no other thread of Python runs then,
and neither does a signal's handler."""
DYING = 2.0
"""Seconds in which Python's fault handler says where a rank stands."""
GRACE = 3.0
"""Seconds in which a rank that did nothing may do nothing more."""
AWAKE = 1e-3
"""The share of a core from which on a thread does something. One that polls as our communicators
do, every millisecond, has 5 to 20 times as much; a loop that sleeps a tenth of a second each time
has less."""
WORKING = 1e-2
"""The same where a call holds the GIL: gloo's thread, which polls, has a tenth of it."""


def watch(stream: int) -> dict[str, Any]:
    """What is known of the rank when it is gone, which it is when this returns."""
    known: dict[str, Any] = {}
    rest, deadline = b"", float("inf")
    idleness = Idleness()
    os.set_blocking(stream, False)
    broken = select.poll()
    broken.register(stream, 0)  # a word wakes nobody: ranks that share cores have many
    while True:
        broken.poll(PAUSE * 1000)
        try:
            text = os.read(stream, 1 << 20)
            ended = not text  # nobody can say any more
        except BlockingIOError:
            text, ended = b"", False
        *lines, rest = (rest + text).split(b"\n")
        for word in map(json.loads, lines):
            if word.get("stage", float("inf")) < known.get("stage", 0):
                continue
            known |= word
            if "limit" in word:
                limit = word["limit"]
                deadline = float("inf") if limit is None else time.monotonic() + limit
                idleness = Idleness(word.get("idle"))
        if ended:
            return known
        if "killed" in known:
            continue
        if why := idleness.look(known):
            known |= {"killed": why, "waiting": False}
        elif known.get("left") is not None:
            known["killed"] = f"rank {known['left']} left it, rank {known['rank']} hung in a call"
        elif time.monotonic() > deadline:
            known["killed"] = f"not over after {known['limit']:g} s"
        if "killed" in known:
            if idleness.held:
                os.kill(known["pid"], signal.SIGABRT)
                broken.poll(DYING * 1000)
            with suppress(ProcessLookupError):
                os.kill(known["pid"], signal.SIGKILL)


class Seen(NamedTuple):
    """What a process and those that it started have done so far.

    state   of its main thread: a letter of `/proc/PID/stat`
    busy    whether one of them waits for a disk, or for its debugger
    ran     seconds on a core, by thread
    waited  seconds ready to run without a core, by thread
    moved   bytes read and written, by thread, as the system puts it
    """

    state: str
    busy: bool
    ran: dict[str, float]
    waited: dict[str, float]
    moved: dict[str, str]


def see(pid: int, eye: int | None = None) -> Seen:
    """Look at a process, but not at the thread `eye`. OSError where the system does not tell."""
    states, ran, waited, moved = [], {}, {}, {}
    for process in _family(pid):
        folder = Path(f"/proc/{process}")
        states.append((folder / "stat").read_text().rpartition(") ")[2][0])
        for task in (folder / "task").iterdir():
            if task.name != str(eye):
                on, off, _ = (task / "schedstat").read_text().split()
                ran[str(task)], waited[str(task)] = int(on) * 1e-9, int(off) * 1e-9
                moved[str(task)] = (task / "io").read_text()
    return Seen(states[0], bool({"D", "t"} & set(states)), ran, waited, moved)


def _family(pid: int) -> Iterator[int]:
    """A process and those below it, without this one, which the rank has started as well."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if child != os.getpid():
                yield from _family(child)


class Idleness:
    """For how long the rank has done nothing.

    limit  seconds that it may; `None`: it may, but be stopped for `STOPPED`, or hold the GIL
           for `HELD`
    held   whether it kept that too long
    """

    def __init__(self, limit: float | None = None) -> None:
        self._limit, self._warned, self.held = limit, False, False
        self._beat: int | None = None
        self._seconds, self._at = 0.0, time.monotonic()
        self._first: Seen | None = None
        self._last: Seen | None = None

    def look(self, known: dict[str, Any]) -> str:
        """Look now and then. Why the rank has to be killed; empty if it has not."""
        elapsed = time.monotonic() - self._at
        if elapsed < LOOK or "pid" not in known:
            return ""
        self._at += elapsed
        try:
            seen = see(known["pid"], known.get("eye"))
        except (OSError, ValueError):  # something has just ended, or the system does not tell
            self._first = None
            return ""
        stopped, limit = seen.state == "T", GRACE if self._warned else self._limit
        silent = self._beat is not None and self._beat == known.get("beat")
        self._beat = known.get("beat")
        if stopped:
            limit = min(limit or STOPPED, STOPPED)
        elif limit is None and silent:
            limit = HELD
        share = WORKING if self._limit is None and not stopped else AWAKE
        if limit is None or self._first is None or self._awake(seen, limit * share):
            self._seconds, self._first = 0.0, seen
        else:
            # a look that is late says nothing of the rank: this process was stopped itself
            self._seconds += max(min(elapsed, 2 * LOOK) - self._starved(seen), 0.0)
        self._last = seen
        if limit is None or self._seconds < limit:
            return ""
        if stopped:
            return f"stopped for {limit:g} s"
        if self._limit is None:
            self.held = True
            return f"a call that holds the GIL did nothing for {limit:g} s"
        if self._warned:
            return f"nothing was done for {self._limit:g} s"
        self._warned, self._first = True, None
        os.kill(known["pid"], signal.SIGALRM)
        return ""

    def _awake(self, seen: Seen, least: float) -> bool:
        assert self._first is not None
        before = self._first.ran
        longest = max(ran - before.get(thread, 0.0) for thread, ran in seen.ran.items())
        return seen.busy or seen.moved != self._first.moved or longest > least

    def _starved(self, seen: Seen) -> float:
        """Seconds since the last look in which a thread had no core. It could not do anything."""
        assert self._last is not None
        before = self._last.waited
        return max(waited - before.get(task, waited) for task, waited in seen.waited.items())


def story(ends: list[dict[str, Any]]) -> str:
    """How the ranks ended, in words; the first of them ended first, the others with it."""
    first, *others = [end for end in ends if end.get("leaving") or end.get("killed")] or ends
    others = sorted((end for end in ends if end is not first), key=lambda end: int(end["rank"]))
    late = [str(end["rank"]) for end in others if _stage(end) != _stage(first)]
    if first.get("killed") and first.get("waiting") and late:
        head = f"{first['killed']}: rank {first['rank']} waited for rank {', '.join(late)}"
    elif first.get("killed"):
        head = f"{first['killed']}, so rank {first['rank']} was killed"
    elif first.get("leaving"):
        head = f"rank {first['rank']} left by {first['leaving']}"
    else:
        head = f"rank {first['rank']} died"
    stood = (f"  rank {e['rank']} stood at {e.get('at', 'the start')}" for e in (first, *others))
    return "\n".join([f"{first.get('doing', 'start of the run')}: {head}", *stood])


def _stage(end: dict[str, Any]) -> tuple[Any, ...]:
    return end.get("doing"), end.get("waiting")


def main(stream: int) -> None:
    """Watch, and tell unless there is nothing to tell, or somebody else does."""
    known = watch(stream)
    folder = Path(known["folder"]) if "folder" in known else None
    if known.get("done") and not known.get("killed"):
        if folder is not None and not known["supervised"]:
            with suppress(OSError):  # the first of them removes it
                folder.rmdir()
        return
    ends = [known]
    if folder is not None:
        folder.mkdir(exist_ok=True)
        with (folder / ENDS).open("a") as file:
            file.write(json.dumps(known) + "\n")
        time.sleep(OTHERS)
        ends = read(folder / ENDS)
    if ends[:1] == [known] and not known.get("supervised"):
        print(f"\nd5test: {story(ends)}\n", file=sys.stderr, flush=True)
        if folder is not None:
            shutil.rmtree(folder)


def read(file: Path) -> list[dict[str, Any]]:
    """The ends that the sentries have written, in their order."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its rank, and by nothing else
    main(int(sys.argv[1]))
