"""A backend of one's own in two files: `./old.py:Mine` is compared with `./new.py:Mine`.

Requirements: it is done only where there is no choice: each side has one such backend that the
other has not. Both are named in the environment, so that nobody takes them for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from d5test.compare.detail import Detail
from d5test.compare.entry import Entry

if TYPE_CHECKING:
    from d5test.compare.reading import Run

FACT = "backend"
"""Where the environment says what was compared with what."""


def succeeded(sides: Sequence[list[Run]]) -> list[list[Run]]:
    """The sides; the old one's backend has the name of the new one's if that took its place."""
    if len(sides) != 2:
        return list(sides)
    old, new = sides
    before, after = _own(old), _own(new)
    gone, come = before - after, after - before
    if not len(gone) == len(come) == 1:
        return list(sides)
    (was,), (now,) = gone, come
    return [[_renamed(run, was, now) for run in old], [_told(run, now) for run in new]]


def _own(side: Sequence[Run]) -> set[str]:
    return {entry.own for run in side for entry in run.entries.values() if entry.own}


def _told(run: Run, backend: str) -> Run:
    return replace(run, facts={FACT: backend, **run.facts})


def _renamed(run: Run, was: str, now: str) -> Run:
    """The run as if its backend had the other's name."""
    entries = (_entry(entry, was, now) for entry in run.entries.values())
    return _told(
        replace(
            run,
            entries={entry.name: entry for entry in entries},
            facts={name.replace(was, now): fact for name, fact in run.facts.items()},
            details={
                name.replace(was, now): _detail(detail, was, now)
                for name, detail in run.details.items()
            },
        ),
        was,
    )


def _entry(entry: Entry, was: str, now: str) -> Entry:
    name, identity = (text.replace(was, now) for text in (entry.name, entry.identity))
    return replace(entry, name=name, identity=identity)


def _detail(detail: Detail, was: str, now: str) -> Detail:
    about = {
        path: fact.replace(was, now) if isinstance(fact, str) else fact
        for path, fact in detail.about.items()
    }
    return replace(detail, about=about)
