"""The corpus on both versions: what no noise is in, judged before anything is timed.

Requirements: a case is judged on both versions or on neither, so that none vanishes for want of
time; what gives no record says why; where time is short, what is left out is of no operator more
than of another.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from operator import attrgetter

import numpy as np

from d5test.checks import Fault
from d5test.client.client import BackendClient
from d5test.client.messages import BackendInfo
from d5test.gate.session import clients_of, put_down
from d5test.gate.versions import NEW, OLD
from d5test.timed import Entry

SIDES = (OLD, NEW)
"""Who is judged. There is no control: what is judged twice is the same to the digit."""
SHARE = 0.5
"""Of the budget, at most: the rest is for times."""


@dataclass(frozen=True)
class Frozen:
    """A case in one direction: its record on a client, and the fault if it is one.

    `judge` raises a fault that has no judgement, or what cannot be judged (`BROKEN`).
    """

    name: str
    backend: str
    judge: Callable[[BackendClient], tuple[Entry, Fault | None]]


@dataclass
class Examined:
    """A case on both versions.

    entries  the record of each, or in `broken` why it has none
    seconds  what it took to judge each
    fault    the new version's, and `about` the backend whose it is
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    fault: Fault | None = None
    about: BackendInfo | None = None


@dataclass
class Examination:
    """What was judged.

    cases  by name, in the order in which they were given
    left   names of those that the budget left no time for
    notes  what a reader should know besides
    """

    cases: dict[str, Examined] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Cases with a record of both versions."""
        return sum(len(case.entries) == len(SIDES) for case in self.cases.values())

    @property
    def reasons(self) -> Counter[str]:
        """Why the others have none: the old version's reason, or else the new one's."""
        reasons = (case.broken for case in self.cases.values() if case.broken)
        return Counter(broken.get(OLD, broken.get(NEW, "")) for broken in reasons)


def examine(
    cases: Sequence[Frozen],
    opens: Callable[[str, str], AbstractContextManager[BackendClient]],
    seed: int = 0,
    budget: float = inf,
) -> Examination:
    """Each case on both versions, in an order that is drawn.

    opens   a client of an arm, for a backend
    budget  seconds that the whole gate may take
    """
    examined: dict[str, Examined] = {}
    notes: list[str] = []
    until = time.monotonic() + SHARE * budget
    drawn = [cases[k] for k in np.random.default_rng(seed).permutation(len(cases))]
    backend_of = attrgetter("backend")
    for backend, group in groupby(sorted(drawn, key=backend_of), backend_of):
        with clients_of(opens, SIDES, backend) as (clients, broken):
            threads = [client.about.threads for client in clients.values()]
            if len(set(threads)) > 1:
                notes.append(
                    f"the old and the new version of {backend} compute with "
                    f"{' and '.join(map(str, threads))} threads, on which some ratios depend: "
                    "give --threads"
                )
            for case in group:
                if time.monotonic() <= until:
                    examined[case.name] = _examined(case, clients, broken)
    names = [case.name for case in cases]
    return Examination(
        {name: examined[name] for name in names if name in examined},
        [name for name in names if name not in examined],
        notes,
    )


def _examined(
    case: Frozen, clients: Mapping[str, BackendClient], broken: Mapping[str, str]
) -> Examined:
    examined = Examined(broken=dict(broken))
    for arm, client in clients.items():
        begun = time.perf_counter()
        fault: Fault | None = None
        try:
            with put_down(examined.broken, arm):
                entry, fault = case.judge(client)
                backend = {**entry["backend"], "name": case.backend}
                examined.entries[arm] = {**entry, "backend": backend}
        except Fault as unjudged:
            fault, examined.broken[arm] = unjudged, _headline(unjudged)
        examined.seconds[arm] = time.perf_counter() - begun
        if fault is not None and arm == NEW:
            examined.fault, examined.about = fault, client.about
    return examined


def _headline(fault: Fault) -> str:
    """What is wrong, and what the framework said."""
    said = (fault.details[name] for name in ("raised", "how") if name in fault.details)
    return ": ".join([fault.headline, *(line.partition("\n")[0] for line in said)])
