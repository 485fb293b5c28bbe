"""A reproducer that was run before it is promised.

Requirements: it runs in a fresh process, as it will where it is sent, but of one that has imported
the framework. A fault that is not there again may take something that the backend keeps from call
to call, so a second file makes other calls first. What shows nothing is written all the same, and
said to show nothing.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from d5test.backends.base import Unsupported
from d5test.checks.repetition import variations
from d5test.client.messages import FAILURES
from d5test.outcome.fault import Fault
from d5test.reproducer.closure import Inseparable
from d5test.reproducer.compose import write
from d5test.reproducer.data import DIED

COMPARED = ("within", "computed", "special", "signed")
"""The claims on values, which other calls before it leave as they are."""
GONE, THERE = 0, 1
"""Exit statuses of reproducers."""
AFTER = "only after calls with other data of the same shapes, which the file makes first"
NEVER = "it says gone: in a fresh process the case is right, also after calls with other data"
ALONE = "it says gone: in a fresh process the case is right"
UNTRIED = "it could not be tried in a fresh worker"
BROKEN = 2
"""The exit status of a reproducer that cannot be tried, and of a worker that gave none."""


def prove(fault: Fault, client: Any, folder: Path) -> tuple[Path, str]:
    """Write the reproducer of a fault; its path, and what else is to be said of it.

    The client's worker is a fresh one afterwards. Where that would be slow, or the process would
    die with the fault, nothing is run.
    """
    about = client.about
    with suppress(Inseparable):
        path = write(fault, about, folder, brief=True)
        if _status(path, client) == THERE:
            return path, ""
    path = write(fault, about, folder)
    status, said = (THERE, "") if fault.kind in DIED else _tried(path, client)
    if status != GONE:
        return path, f"{UNTRIED}: {said}" if status == BROKEN else ""
    later = preceded(fault, mutable=bool(about.mutable))
    if later is None:
        return path, ALONE
    path = write(later, about, folder)
    if _status(path, client) == THERE:
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


def _status(path: Path, client: Any) -> int | None:
    """The exit status in a fresh worker; `None` where a fresh one is not to be had."""
    return _tried(path, client)[0]


def _tried(path: Path, client: Any) -> tuple[int | None, str]:
    """The same, and the last line that it printed, or how the worker failed."""
    if not client.renew():
        return None, ""
    try:
        status, said = client.invoke("d5test.worker.service:run_script", str(path.resolve()))
    except (Unsupported, *FAILURES) as error:
        return BROKEN, str(error).strip().partition("\n")[0]
    finally:
        client.renew()
    return int(status), said.strip().rpartition("\n")[2]
