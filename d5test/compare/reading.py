"""Runs from files: benchmark JSON of d5test's suites, and of pytest-benchmark alone.

Requirements: a file that is truncated, empty, foreign or hostile is an `Unreadable` of one line;
memory is bounded by `condensed`; nothing in a file is run, opened or looked up. A commit is a name
that git knows here, or the beginning of an id that a file has; runs of a tree with uncommitted
changes are no runs of the commit. Commits are found by an index, so that no file is read twice: it
is a cache, which can be deleted, and where it cannot be written nothing is lost but time.
"""

import gc
import glob
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from d5test import files
from d5test.compare.condensed import BLOCK, condensed
from d5test.compare.entry import Entry, detail_of, entry_of
from d5test.compare.environment import facts_of
from d5test.compare.numbers import Unreadable, lookup, mapping, quoted
from d5test.files import TooLarge, parsed
from d5test.metric import RATIO, TIME
from d5test.record import KEY, usable_cores

FOLDER = Path(".benchmarks")
"""Where pytest-benchmark saves what `--benchmark-autosave` times."""
INDEX = "d5test-index.json"
SHORTEST = 4
"""Digits of a commit's id that are taken for its beginning."""
LARGE = 1 << 28
"""Bytes of files that are worth processes of their own: seconds."""
UNTIMED = f"{KEY}.untimed"
"""Where a file says why tests have no time."""


@dataclass(frozen=True)
class Run:
    """What one file says.

    path      of the file
    when      the time at which it was written, as it says
    entries   by full name
    untimed   why a test of the run has no time, by full name
    facts     of machine, software and load, by name
    """

    path: str
    when: str
    entries: Mapping[str, Entry]
    untimed: Mapping[str, str]
    facts: Mapping[str, str]


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles meanwhile: large files make a million objects and no cycle.

    It takes a third of the time of 10,000 benchmarks.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read(side: str, rounds: int = 0) -> list[Run]:
    """The runs of one side: files, folders, patterns and commits, separated by commas.

    `rounds`: how many of each benchmark are kept at most, with its other details; none by default.
    """
    return read_sides([side], rounds)[0]


@uncollected()
def read_sides(sides: Sequence[str], rounds: int = 0, results: Path = FOLDER) -> list[list[Run]]:
    """The runs of each side; large files at the same time. `results`: where commits are found."""
    paths = [list(dict.fromkeys(_paths(side, results))) for side in sides]
    in_order = iter(_runs([path for side in paths for path in side], rounds))
    runs = [[next(in_order) for _ in side] for side in paths]
    for side in runs:
        _check_copies(side)
    if len(sides) != 2:
        return runs
    # A run that is on both sides compares nothing: a name or a pattern was mistyped.
    new = {path.resolve(): path for path in paths[1]}
    for path in paths[0]:
        if path.resolve() in new:
            raise Unreadable(f"{new[path.resolve()]}: is on both sides")
    return _succeeded(*runs)


def _runs(paths: Sequence[Path], rounds: int) -> list[Run]:
    size = sum(path.stat().st_size for path in paths if path.is_file())
    workers = min(len(paths), usable_cores() or 1)
    if size < LARGE or workers < 2:
        return [_run(path, rounds) for path in paths]
    with ProcessPoolExecutor(workers, initializer=gc.disable) as pool:
        return list(pool.map(_run, paths, repeat(rounds)))


def _paths(side: str, results: Path) -> Iterator[Path]:
    for name in [side] if side and os.path.exists(side) else side.split(","):
        path = Path(name)
        if not name.strip():
            raise Unreadable(f"{quoted(side)}: a name in it is empty")
        if not os.path.exists(name):
            paths = sorted(map(Path, glob.glob(name))) or files_of(name, results)
        elif path.is_dir():
            paths = sorted(file for file in path.glob("*.json") if file.name != INDEX)
            if not paths:
                raise Unreadable(f"{quoted(name)}: there are no JSON files in this folder")
        else:
            paths = [path]
        if not paths:
            raise Unreadable(
                f"{quoted(name)}: there is no such file, and no run of such a commit in {results}"
            )
        yield from paths


def _run(path: Path, rounds: int) -> Run:
    try:
        return _run_of(str(path), _content(path, rounds), details=rounds > 0)
    except (Unreadable, TooLarge) as error:
        raise Unreadable(f"{path}: {error}") from None
    except RecursionError:  # what was parsed is written and hashed, by deeper calls
        raise Unreadable(f"{path}: is not a benchmark file: it is nested too deep") from None
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None


def _content(path: Path, rounds: int) -> Any:
    if not path.is_file():
        gone = path.is_symlink() and not path.exists()
        raise Unreadable("is a link to nothing" if gone else "is not a regular file")
    with path.open("rb") as file:
        text = condensed(iter(lambda: file.read(BLOCK), b""), rounds)
    if not text.strip():
        raise Unreadable("is empty")
    try:
        return parsed(text)
    except UnicodeDecodeError:
        raise Unreadable("is not JSON: it is not UTF-8") from None
    except TooLarge as error:
        raise Unreadable(f"is {error}") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        why = "it ends too early" if cut else error.msg
        raise Unreadable(f"is not JSON: {why}") from None
    except ValueError as error:
        raise Unreadable(f"is not a benchmark file: {quoted(str(error))}") from None


def _run_of(path: str, content: Any, *, details: bool) -> Run:
    benchmarks = content.get("benchmarks") if isinstance(content, dict) else None
    if not isinstance(benchmarks, list):
        raise Unreadable("is not a benchmark file: it has no list of benchmarks")
    entries: dict[str, Entry] = {}
    for benchmark in benchmarks:
        entry = entry_of(benchmark)
        if entry.name in entries:
            raise Unreadable(f"has benchmark {quoted(entry.name)} twice")
        entries[entry.name] = replace(entry, detail=detail_of(benchmark)) if details else entry
    reasons = lookup(content, UNTIMED)
    reasons = {} if reasons is None else mapping(reasons, UNTIMED)
    if not entries and not reasons:
        raise Unreadable("has no benchmarks")
    when = str(content.get("datetime", ""))
    untimed = {name: str(reason) for name, reason in reasons.items()}
    return Run(path, when, entries, untimed, facts_of(content))


def _check_copies(runs: Sequence[Run]) -> None:
    """A copy of a run is no second run: the noise between the two would be none."""
    seen: dict[object, str] = {}
    for run in runs:
        values = tuple(
            (name, sample.values)
            for name, entry in run.entries.items()
            for sample in [entry.samples.get(TIME.name) or entry.samples.get(RATIO.name)]
            if sample is not None
        )
        twin = seen.setdefault((run.when, values), run.path)
        if twin != run.path:
            raise Unreadable(f"{run.path}: is a copy of {twin}, not another run")


def _succeeded(old: Sequence[Run], new: Sequence[Run]) -> list[list[Run]]:
    """Both sides; `./old.py:Mine` has the name of `./new.py:Mine` if that took its place.

    It is done only where there is no choice: each side has one such backend that the other has
    not. The environment names both, so that nobody takes them for one.
    """
    before, after = (
        {entry.backend_file for run in side for entry in run.entries.values()} - {""}
        for side in (old, new)
    )
    gone, come = before - after, after - before
    if not len(gone) == len(come) == 1:
        return [[*old], [*new]]
    (was,), (now,) = gone, come
    renamed = [
        replace(
            run,
            entries={
                name.replace(was, now): _renamed(entry, was, now)
                for name, entry in run.entries.items()
            },
            facts={
                "backend": was,
                **{name.replace(was, now): fact for name, fact in run.facts.items()},
            },
        )
        for run in old
    ]
    return [renamed, [replace(run, facts={"backend": now, **run.facts}) for run in new]]


def _renamed(entry: Entry, was: str, now: str) -> Entry:
    name, identity = (text.replace(was, now) for text in (entry.name, entry.identity))
    about = {
        path: fact.replace(was, now) if isinstance(fact, str) else fact
        for path, fact in entry.detail.about.items()
    }
    return replace(entry, name=name, identity=identity, detail=replace(entry.detail, about=about))


def files_of(commit: str, folder: Path) -> list[Path]:
    """The files of a commit, oldest first; none where the folder has none."""
    if not folder.is_dir():
        return []
    wanted = _resolved(commit) or (commit if len(commit) >= SHORTEST else None)
    if wanted is None:
        return []
    rows = _index(folder).items()
    paths = [folder / name for name, row in rows if row["commit"].startswith(wanted)]
    return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path))


def _resolved(commit: str) -> str | None:
    """The id of what git calls so in this folder; None where it knows nothing of it."""
    if commit.startswith("-"):
        return None
    command = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() or None


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    """By path in the folder: the file's `stamp` (size, time of change) and its clean `commit`.

    Files that changed since it was written are read.
    """
    before: Any = None
    with suppress(OSError, ValueError, RecursionError):
        before = parsed((folder / INDEX).read_bytes())
    now = {}
    for path in sorted(folder.rglob("*.json")):
        if path.name == INDEX or not path.is_file():
            continue
        name, stat = path.relative_to(folder).as_posix(), path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        row = before.get(name) if isinstance(before, dict) else None
        commit = lookup(row, "commit") if lookup(row, "stamp") == stamp else None
        known = isinstance(commit, str)
        now[name] = {"stamp": stamp, "commit": commit if known else _commit(path)}
    if now != before:
        with suppress(OSError):
            files.replace(folder / INDEX, json.dumps(now, indent=1))
    return now


def _commit(path: Path) -> str:
    """The commit that a file says it is of; empty if none, or one with changes."""
    try:
        content = _content(path, 0)
    except (OSError, ValueError, RecursionError):
        return ""
    dirty, commit = (lookup(content, f"commit_info.{name}") for name in ("dirty", "id"))
    return "" if dirty else str(commit or "")
