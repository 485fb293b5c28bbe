"""Runs of a commit: found in a folder of results by an index, so that no file is read twice.

Requirements: a commit is a name that git knows here, or the beginning of an id that a file has;
runs of a tree with uncommitted changes are no runs of the commit; the index is a cache: it can be
deleted, and where it cannot be written nothing is lost but time.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from d5test.compare.condensed import BLOCK, condensed
from d5test.files import parsed, replace

FOLDER = Path(".benchmarks")
"""Where pytest-benchmark saves what `--benchmark-autosave` times."""
INDEX = "d5test-index.json"
SHORTEST = 4
"""Digits of a commit's id that are taken for its beginning."""
Known = dict[str, dict[str, Any]]
"""By path in the folder: the file's `stamp` (size, time of change) and its clean `commit`."""


def files_of(commit: str, folder: Path) -> list[Path]:
    """The files of a commit, oldest first; none where the folder has none."""
    if not folder.is_dir():
        return []
    full = _resolved(commit)
    wanted = full or (commit if len(commit) >= SHORTEST else None)
    if wanted is None:
        return []
    known = _index(folder)
    found = [folder / name for name, entry in known.items() if entry["commit"].startswith(wanted)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path))


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


def _index(folder: Path) -> Known:
    """What is in the folder now; files that changed since are read."""
    before = _read(folder / INDEX)
    now: Known = {}
    for path in sorted(folder.rglob("*.json")):
        if path.name == INDEX or not path.is_file():
            continue
        name, stat = path.relative_to(folder).as_posix(), path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        old = before.get(name)
        fresh = old is not None and old.get("stamp") == stamp and isinstance(old["commit"], str)
        commit = old["commit"] if fresh and old is not None else _commit(path)
        now[name] = {"stamp": stamp, "commit": commit}
    if now != before:
        with suppress(OSError):
            replace(folder / INDEX, json.dumps(now, indent=1))
    return now


def _read(path: Path) -> Known:
    try:
        found = parsed(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        n: e for n, e in found.items() if isinstance(e, dict) and {"stamp", "commit"} <= set(e)
    }


def _commit(path: Path) -> str:
    """The commit that a file says it is of; empty if none, or one with changes."""
    try:
        with path.open("rb") as file:
            content = parsed(condensed(iter(lambda: file.read(BLOCK), b"")))
    except (OSError, ValueError, RecursionError):
        return ""
    info = content.get("commit_info") if isinstance(content, dict) else None
    if not isinstance(info, Mapping) or info.get("dirty"):
        return ""
    return str(info.get("id") or "")
