"""A reproducer that was run before it is promised.

Requirements: it runs as its user will run it, in a process that has imported nothing: where the
framework is imported already, nobody would see that the file lacks an import. A fault that is not
there again may take something that the backend keeps from call to call, so a second file makes
other calls first. What shows nothing is written all the same, and said to show nothing.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from d5test.checks.repetition import variations
from d5test.outcome.fault import Fault
from d5test.reproducer.closure import Inseparable
from d5test.reproducer.compose import write
from d5test.reproducer.data import DIED
from d5test.reproducer.trial import GONE, THERE, NoVerdict, folder_of, tried

COMPARED = ("within", "computed", "special", "signed")
"""The claims on values, which other calls before it leave as they are."""
AFTER = "only after calls with other data of the same shapes, which the file makes first"
NEVER = "it says gone: in a fresh process the case is right, also after calls with other data"
ALONE = "it says gone: in a fresh process the case is right"
BROKEN = "cannot be tried"
UNTRIED = "it could not be tried in a fresh process"


def prove(fault: Fault, client: Any, folder: Path) -> tuple[Path, str]:
    """Write the reproducer of a fault; its path, and what else is to be said of it.

    Its worker makes room for that: a fresh one answers afterwards. Where none may be started, or
    the process would die with the fault, nothing is run.
    """
    about = client.about
    with suppress(Inseparable):
        path = write(fault, about, folder, brief=True)
        if _verdict(path, client) == THERE:
            return path, ""
    path = write(fault, about, folder)
    verdict = THERE if fault.kind in DIED else _verdict(path, client)
    if verdict != GONE:
        return path, UNTRIED if verdict == BROKEN else ""
    later = preceded(fault, mutable=bool(about.mutable))
    if later is None:
        return path, ALONE
    path = write(later, about, folder)
    if _verdict(path, client) == THERE:
        return path, AFTER
    return write(fault, about, folder), NEVER


def preceded(fault: Fault, *, mutable: bool) -> Fault | None:
    """The same fault after calls with other data; `None` where its claim is about all calls.

    On a `mutable` backend all data are written to the same address, if there is one to write to.
    """
    evidence = fault.evidence
    if len(evidence.feeds) > 1 or evidence.claim not in COMPARED:
        return None
    (feed,) = evidence.feeds
    varied = variations(fault.case, feed.inputs)
    before = tuple(replace(feed, inputs=arrays, layouts=None) for arrays in varied)
    later = replace(
        evidence,
        feeds=(*before, feed),
        expected=(*((),) * len(before), *evidence.expected),
        reuse=mutable and set(feed.layouts or ()) <= {"contiguous"},
    )
    details = {**fault.details, "seen": AFTER}
    return type(fault)(fault.check, fault.case, fault.headline, details, fault.judgement, later)


def _verdict(path: Path, client: Any) -> str | None:
    """What it says in a fresh process; `None` where a worker may start none."""
    if not client.renew():
        return None
    try:
        imported = re.findall(r"^(?:import|from) (\w+)", path.read_text("utf-8"), re.MULTILINE)
        beside = folder_of({*imported} - sys.stdlib_module_names - {"d5test"}, client.about)
        verdict, line = tried(path, client.about.executable, beside=beside)
    except NoVerdict:
        return BROKEN
    return verdict if line.startswith(verdict) else BROKEN  # it died, or was too slow
