"""Which benchmark of one side is which of the other: the same, new, vanished, renamed, changed.

Requirements: a benchmark is what it computes; a name that now means something else is not
compared, and something that only has another name is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from d5test.compare.entry import named
from d5test.compare.numbers import Unreadable
from d5test.compare.reading import Run

WRONG = "the timed outputs are wrong"
"""What the reason says of a benchmark that ran, and whose time does not count."""


@dataclass(frozen=True)
class Vanished:
    """A benchmark that the new version has not, or not in each run, and why."""

    name: str
    operator: str
    reason: str

    @property
    def wrong(self) -> bool:
        """Whether it ran, with wrong outputs."""
        return WRONG in self.reason


@dataclass(frozen=True)
class Matching:
    """Names of benchmarks, in the order of the files.

    pairs     old name and new name of what is compared: equal, but for what was `renamed`
    renamed   those pairs whose names differ
    changed   the same name of something else now: not compared
    """

    pairs: Sequence[tuple[str, str]]
    renamed: Sequence[tuple[str, str]]
    changed: Sequence[str]
    new: Sequence[str]
    vanished: Sequence[Vanished]


def match(old: Sequence[Run], new: Sequence[Run]) -> Matching:
    """Match by name, and what is left by what it is."""
    before, after = _identities(old), _identities(new)
    common = [name for name in before if name in after]
    changed = [name for name in common if before[name] != after[name]]
    kept = [(name, name) for name in common if before[name] == after[name]]
    renamed = _renamed(
        {name: before[name] for name in before if name not in after},
        {name: after[name] for name in after if name not in before},
    )
    moved = dict(renamed)
    vanished = [_vanished(name, old, new, after) for name in before if name not in moved]
    arrived = set(moved.values())
    return Matching(
        pairs=[*kept, *renamed],
        renamed=renamed,
        changed=changed,
        new=[name for name in after if name not in before and name not in arrived],
        vanished=[gone for gone in vanished if gone is not None],
    )


def _identities(side: Sequence[Run]) -> dict[str, str]:
    """What each name of a side stands for; within a side it must be one thing."""
    found: dict[str, str] = {}
    for run in side:
        for name, entry in run.entries.items():
            if found.setdefault(name, entry.identity) != entry.identity:
                raise Unreadable(
                    f"{run.path}: benchmark {named(name)} is another one in the same side's runs"
                )
    return found


def _renamed(gone: dict[str, str], come: dict[str, str]) -> list[tuple[str, str]]:
    """Pairs of names for one thing, where there is exactly one on each side."""
    counts = Counter(gone.values()), Counter(come.values())
    names = {identity: name for name, identity in come.items()}
    return [
        (name, names[identity])
        for name, identity in gone.items()
        if identity and counts[0][identity] == counts[1][identity] == 1
    ]


def _vanished(
    name: str, old: Sequence[Run], new: Sequence[Run], after: dict[str, str]
) -> Vanished | None:
    lacking = [run for run in new if name not in run.entries]
    if not lacking or (name in after and any(name not in run.entries for run in old)):
        return None
    operator = next(run.entries[name].operator for run in old if name in run.entries)
    # files of other tests lack it too: the one that was to have it says why it has not
    told = (run.untimed[name] for run in lacking if name in run.untimed)
    reason = next(told, "it was not run")
    if len(lacking) < len(new):
        reason = f"in {len(lacking)} of {len(new)} runs: {reason}"
    return Vanished(name, operator, reason)
