"""What a run writes of its tests, one shard of a suite or all of it, and how shards are merged.

    {"event": "run", "schema": 1, "shard": "2/4", "about": {...}, "where": {...}}
    {"event": "collected", "ids": ["operators/test_forward.py::...", ...]}
    {"event": "whole", "tests": 480, "sha256": "..."}
    {"event": "report", "report": {...}}
    {"event": "end", "status": 0}

Requirements: a line is written when it is known, so that a run that was killed leaves what came
before; a test is in one shard, by its id alone, on any machine; what is merged is a run of each
test once, or the reason why not in one line.
"""

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d5test.arguments import Mistake
from d5test.names import plural

SCHEMA = 1
NAMED = 3
"""Tests that a line names."""
ENDED = (0, 1, 5, 6)
"""Exit statuses of a run that came to its end: passed, failed, no test, nothing judged."""


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, from 1 on."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def holds(self, test: str) -> bool:
        """Whether the test of this id is in it: by 64 bits of SHA-256, modulo `count`."""
        digest = hashlib.sha256(test.encode(errors="backslashreplace")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number - 1


def shard(text: str) -> Shard:
    """The part that a command line names.

    >>> shard("2/4")
    Shard(number=2, count=4)
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise argparse.ArgumentTypeError(f"expected 1/4, 2/4, 3/4 or 4/4, say, got {text!r}")
    return Shard(number, count)


def digest(ids: Iterable[str]) -> str:
    """One number for a set of tests, in whatever order."""
    lines = "\n".join(sorted(ids))
    return hashlib.sha256(lines.encode(errors="backslashreplace")).hexdigest()


@dataclass(frozen=True)
class Run:
    """A file that a run wrote.

    shard    which part of its suite; None: all of it
    about    what must be the same in all shards: versions, backends, options
    where    the machine, which may be another one
    ids      the tests that it had to do
    whole    how many tests all shards have, and their `digest`; None if it ended too early
    reports  pytest's, of collection and of the phases of tests, as pytest serialises them
    status   its exit status; None if it had none
    """

    path: str
    shard: Shard | None
    about: Mapping[str, Any]
    where: Mapping[str, Any]
    ids: Sequence[str]
    whole: tuple[int, str] | None
    reports: Sequence[dict[str, Any]]
    status: int | None

    @property
    def undone(self) -> list[str]:
        """Tests that had begun in no phase, or not come to the end of the last one."""
        done = {report["nodeid"] for report in self.reports if report.get("when") == "teardown"}
        return [test for test in self.ids if test not in done]

    @property
    def gap(self) -> str:
        """Why not all that it had to do has an outcome; empty if all has."""
        if self.undone:
            return (
                f"its run ended with {len(self.undone)} of {plural(len(self.ids), 'test')} "
                f"left: {_some(self.undone)}"
            )
        if self.status is None:
            return "its run was killed"
        return "" if self.status in ENDED else f"its run ended with exit status {self.status}"


def read(path: str | Path) -> Run:
    """The run that a file tells of. Raises `Mistake` where it tells of none.

    The last line may have been cut off.
    """
    try:
        *lines, _ = Path(path).read_text(encoding="utf-8").split("\n")
        events = [json.loads(line) for line in lines]
        kinds: dict[str, list[dict[str, Any]]] = {}
        for event in events:
            kinds.setdefault(event["event"], []).append(event)
        (head,) = kinds["run"]
        if head["schema"] != SCHEMA:
            raise Mistake(f"{path}: of schema {head['schema']}; this d5test reads {SCHEMA}")
        wholes = [(int(e["tests"]), str(e["sha256"])) for e in kinds.get("whole", ())]
        return Run(
            str(path),
            shard(head["shard"]) if head["shard"] else None,
            dict(head["about"]),
            dict(head["where"]),
            list(dict.fromkeys(test for e in kinds.get("collected", ()) for test in e["ids"])),
            wholes[-1] if wholes else None,
            [dict(event["report"]) for event in kinds.get("report", ())],
            int(kinds["end"][-1]["status"]) if "end" in kinds else None,
        )
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError, argparse.ArgumentTypeError):
        raise Mistake(f"{path}: not a file that --outcomes wrote") from None


def merged(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """The events of the whole run, without its end. Raises `Mistake` if they make up none."""
    first = runs[0]
    _require_all_shards(runs)
    for run in runs[1:]:
        for difference in _differences(first.about, run.about):
            raise Mistake(f"{first.path} and {run.path} differ in {difference}")
    for run in runs:
        if run.gap:
            raise Mistake(f"{run.path}: {run.gap}")
        if run.whole != first.whole:
            counts = " and ".join(str(r.whole[0] if r.whole else "none") for r in (first, run))
            raise Mistake(f"{first.path} and {run.path} chose among other tests: {counts}")
    ids = [test for run in runs for test in run.ids]
    twice = [test for test, count in Counter(ids).items() if count > 1]
    if twice:
        raise Mistake(f"{plural(len(twice), 'test')} in more than one file: {_some(twice)}")
    if first.whole is None or first.whole != (len(ids), digest(ids)):
        count = first.whole[0] if first.whole else "unknown"
        raise Mistake(f"the files hold {plural(len(ids), 'test')}, the whole suite has {count}")
    where = {"merged": [{"shard": str(run.shard or ""), **run.where} for run in runs]}
    yield {"event": "run", "schema": SCHEMA, "shard": None, "about": first.about, "where": where}
    yield {"event": "collected", "ids": ids}
    yield {"event": "whole", "tests": len(ids), "sha256": digest(ids)}
    for run in runs:
        yield from ({"event": "report", "report": report} for report in run.reports)


def _require_all_shards(runs: Sequence[Run]) -> None:
    """Each of the N shards is there, once."""
    by_shard: dict[Shard, str] = {}
    for run in runs:
        part = run.shard or Shard(1, 1)
        if part in by_shard:
            which = f"shard {part}" if run.shard else "the whole suite"
            raise Mistake(f"{by_shard[part]} and {run.path} are both {which}")
        by_shard[part] = run.path
    count, *others = {part.count for part in by_shard}
    if others:
        each = ", ".join(f"{path} is shard {part}" for part, path in by_shard.items())
        raise Mistake(f"not of one run: {each}")
    missing = [
        str(Shard(n, count)) for n in range(1, count + 1) if Shard(n, count) not in by_shard
    ]
    if missing:
        raise Mistake(f"{plural(len(missing), 'shard')} of {count} missing: {_some(missing)}")


def _differences(one: Any, other: Any, name: str = "") -> Iterator[str]:
    """Where two trees of JSON differ, in words."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            inner = f"{name} {key}".strip()
            yield from _differences(one.get(key), other.get(key), inner)
    elif one != other:
        yield f"{name}: {json.dumps(one)} and {json.dumps(other)}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
