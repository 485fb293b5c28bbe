"""A process beside each rank, which tells how the rank ended when it cannot tell it itself.

Requirements: a rank that is killed, that leaves Python without a word or that does not return from
a call is named, with its test and the line where it was seen last; so are all the other ranks,
which most launchers kill with it. It outlives its rank by a second. It knows nothing but the
standard library, and runs with nothing else: `python -I -S sentry.py`.

It reads one JSON object a line. Each is laid over those before it:

    rank     the number of the rank, `pid` its process
    folder   where the sentries of one machine find each other
    doing    what the rank does: the id of a test and its phase
    limit    seconds until it does something else; then the rank is killed. `null`: no limit
    at       where its main thread stands
    leaving  the call by which it leaves Python
    done     that the run has ended: its end is none to tell of, once `limit` is kept
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ENDS = "ends.jsonl"
"""The file in `folder` to which each sentry adds how its rank ended."""
PAUSE = 0.2
"""Seconds between looks at what the rank has said."""
OTHERS = 0.6
"""Seconds for the sentries of the other ranks to add theirs."""


def watch(stream: int) -> dict[str, Any]:
    """What is known of the rank when it is gone, which it is when this returns."""
    known: dict[str, Any] = {}
    rest, deadline = b"", float("inf")
    os.set_blocking(stream, False)
    broken = select.poll()
    broken.register(stream, 0)  # a word wakes nobody: ranks that share cores have many
    while True:
        broken.poll(PAUSE * 1000)
        text = _said(stream)
        *lines, rest = (rest + (text or b"")).split(b"\n")
        for said in map(json.loads, lines):
            known |= said
            if "limit" in said:
                limit = said["limit"]
                deadline = float("inf") if limit is None else time.monotonic() + limit
        if text is None:
            return known
        if time.monotonic() > deadline:
            known["overdue"], deadline = known["limit"], float("inf")
            os.kill(known["pid"], signal.SIGKILL)


def _said(stream: int) -> bytes | None:
    """What was said since the last time; `None` if nobody can say any more."""
    try:
        return os.read(stream, 1 << 20) or None
    except BlockingIOError:
        return b""


def story(ends: list[dict[str, Any]]) -> str:
    """How the ranks ended, in words; the first of them ended first, the others with it."""
    first, *others = [end for end in ends if end.get("leaving") or end.get("overdue")] or ends
    others = sorted((end for end in ends if end is not first), key=lambda end: int(end["rank"]))
    if first.get("overdue"):
        head = f"not over after {first['overdue']:g} s, so rank {first['rank']} was killed"
    elif first.get("leaving"):
        head = f"rank {first['rank']} left by {first['leaving']}"
    else:
        head = f"rank {first['rank']} died"
    stood = (f"  rank {e['rank']} stood at {e.get('at', 'the start')}" for e in (first, *others))
    return "\n".join([f"{first.get('doing', 'start of the run')}: {head}", *stood])


def main(stream: int) -> None:
    """Watch, and tell unless there is nothing to tell, or somebody else does."""
    known = watch(stream)
    folder = Path(known["folder"]) if "folder" in known else None
    if known.get("done") and not known.get("overdue"):
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
