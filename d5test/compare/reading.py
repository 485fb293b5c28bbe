"""Runs from files: benchmark JSON of d5test's suites, and of pytest-benchmark alone.

Requirements: a file that is truncated, empty, foreign or hostile is an `Unreadable` of one line;
memory is bounded by `condensed`; nothing in a file is run, opened or looked up.
"""

from __future__ import annotations

import gc
import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from d5test.compare.collection import uncollected
from d5test.compare.condensed import BLOCK, condensed
from d5test.compare.detail import Detail, detail_of
from d5test.compare.entry import Entry, entry_of
from d5test.compare.entry import field as at
from d5test.compare.environment import facts_of
from d5test.compare.numbers import Unreadable, told
from d5test.compare.results import FOLDER, INDEX, files_of
from d5test.compare.successor import succeeded
from d5test.files import TooLarge, parsed
from d5test.metric import RATIO, TIME
from d5test.record import KEY, usable_cores

LARGE = 1 << 28
"""Bytes of files that are worth processes of their own: seconds."""


@dataclass(frozen=True)
class Run:
    """What one file says.

    path      of the file
    when      the time at which it was written, as it says
    entries   by full name
    untimed   why a test of the run has no time, by full name
    facts     of machine, software and load, by name
    details   for a report, by full name; empty where it was read to be compared alone
    """

    path: str
    when: str
    entries: Mapping[str, Entry]
    untimed: Mapping[str, str]
    facts: Mapping[str, str]
    details: Mapping[str, Detail] = field(default_factory=dict)


def read(side: str, rounds: int = 0) -> list[Run]:
    """The runs of one side: files, folders, patterns and commits, separated by commas.

    `rounds`: how many of each benchmark are kept at most, with its other details; none by default.
    """
    return read_sides([side], rounds)[0]


@uncollected()
def read_sides(sides: Sequence[str], rounds: int = 0, results: Path = FOLDER) -> list[list[Run]]:
    """The runs of each side; large files at the same time. `results`: where commits are found."""
    paths = [list(dict.fromkeys(_paths(side, results))) for side in sides]
    runs = iter(_runs([path for side in paths for path in side], rounds))
    found = [[next(runs) for _ in side] for side in paths]
    for side in found:
        _different(side)
    _apart(paths)
    return succeeded(found)


def _runs(paths: Sequence[Path], rounds: int) -> list[Run]:
    size = sum(path.stat().st_size for path in paths if path.is_file())
    workers = min(len(paths), usable_cores() or 1)
    if size < LARGE or workers < 2:
        return [_run(path, rounds) for path in paths]
    with ProcessPoolExecutor(workers, initializer=gc.disable) as pool:
        return list(pool.map(_run, paths, repeat(rounds)))


def _paths(side: str, results: Path) -> Iterator[Path]:
    for name in [side] if side and _exists(Path(side)) else side.split(","):
        path = Path(name)
        if not name.strip():
            raise Unreadable(f"{told(side)}: a name in it is empty")
        if not _exists(path):
            found = sorted(map(Path, glob.glob(name)))
        elif path.is_dir():
            found = sorted(file for file in path.glob("*.json") if file.name != INDEX)
            if not found:
                raise Unreadable(f"{told(name)}: there are no JSON files in this folder")
        else:
            found = [path]
        found = found or files_of(name, results)
        if not found:
            raise Unreadable(
                f"{told(name)}: there is no such file, and no run of such a commit in {results}"
            )
        yield from found


def _exists(path: Path) -> bool:
    """Several names, by commas, are often longer than a file's may be."""
    try:
        return path.exists()
    except OSError:
        return False


def _run(path: Path, rounds: int) -> Run:
    try:
        return _run_of(str(path), _content(path, rounds), details=rounds > 0)
    except (Unreadable, TooLarge) as error:
        raise Unreadable(f"{path}: {error}") from None
    except RecursionError:  # what was parsed is written and hashed, by deeper calls
        raise Unreadable(f"{path}: is no benchmark file: it is nested too deep") from None
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None


def _content(path: Path, rounds: int) -> Any:
    if not path.is_file():
        gone = path.is_symlink() and not path.exists()
        raise Unreadable("is a link to nothing" if gone else "is no regular file")
    with path.open("rb") as file:
        text = condensed(iter(lambda: file.read(BLOCK), b""), rounds)
    if not text.strip():
        raise Unreadable("is empty")
    try:
        return parsed(text)
    except RecursionError:
        raise Unreadable("is no benchmark file: it is nested too deep") from None
    except UnicodeDecodeError:
        raise Unreadable("is no JSON: it is not UTF-8") from None
    except TooLarge as error:
        raise Unreadable(f"is {error}") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        why = "it ends too early" if cut else error.msg
        raise Unreadable(f"is no JSON: {why}") from None
    except ValueError as error:
        raise Unreadable(f"is no benchmark file: {told(str(error))}") from None


def _run_of(path: str, content: Any, *, details: bool) -> Run:
    benchmarks = content.get("benchmarks") if isinstance(content, dict) else None
    if not isinstance(benchmarks, list):
        raise Unreadable("is no benchmark file: it has no list of benchmarks")
    entries: dict[str, Entry] = {}
    found: dict[str, Detail] = {}
    for benchmark in benchmarks:
        entry = entry_of(benchmark)
        if entry.name in entries:
            raise Unreadable(f"has benchmark {told(entry.name)} twice")
        entries[entry.name] = entry
        if details:
            found[entry.name] = detail_of(benchmark)
    untimed = _untimed(content)
    if not entries and not untimed:
        raise Unreadable("has no benchmarks")
    when = str(content.get("datetime", ""))
    return Run(path, when, entries, untimed, facts_of(content), found)


def _untimed(content: Mapping[str, Any]) -> dict[str, str]:
    found = at(content, f"{KEY}.untimed")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Unreadable(f"{KEY}.untimed is {told(found)}, not an object")
    return {n: str(why) for n, why in found.items()}


def _apart(sides: Sequence[Sequence[Path]]) -> None:
    """A run that is on both sides compares nothing: a name or a pattern was mistyped."""
    real = [{path.resolve(): path for path in side} for side in sides]
    for path in real[0] if len(real) > 1 else ():
        if path in real[1]:
            raise Unreadable(f"{real[1][path]}: is on both sides")


def _different(runs: Sequence[Run]) -> None:
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
