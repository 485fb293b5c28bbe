"""A reproducer that is run before it is promised.

Requirements: it runs in a fresh process, as it will where it is sent, but of one that has imported
the framework; where a worker finds modules in the folder of the backend, in one that has imported
nothing, since Python does not look there by itself. A fault that is not there again may take
something that the backend keeps from call to call, so further files make other calls first: with
other data, the same call many times, those that the worker had answered; of these the fewest that
are needed. What shows nothing is written all the same, and said to show nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from d5test.backends.base import Unsupported
from d5test.checks.repetition import variations
from d5test.client.messages import FAILURES, Feed
from d5test.outcome.fault import Fault
from d5test.reproducer import trial
from d5test.reproducer.closure import Inseparable
from d5test.reproducer.compose import write
from d5test.reproducer.data import DIED

COMPARED = ("within", "computed", "special", "signed")
"""The claims on values, which other calls before it leave as they are."""
FEW, MANY = 16, 1000
"""Times that a call is repeated, as many as the worker had been asked for."""
SECONDS = 300.0
"""Seconds for one that has to import the framework itself."""
HANGS = 30.0
"""Seconds after which one that may hang does; it imports the framework, too."""
SEARCHING = 15.0
"""Seconds after which no fewer calls are looked for."""
GONE, THERE = 0, 1
"""Exit statuses of reproducers."""
AFTER = "only after calls with other data of the same shapes, which the file makes first"
AGAIN = "only in one of {} calls with the same data, which the file makes"
OTHERWISE = "only after a call with other attributes, which the file makes first"
EARLIER = "only after earlier calls of the operator, of which the file makes the last {} first"
NEVER = (
    "it says gone: in a fresh process the case is right, also after calls with other data, the "
    "same call over and over, and the earlier calls of the operator; the fault depends on more "
    "than that, and is not reproducible alone"
)
RAISED = "; a call before it had raised {}"
ALONE = "it says gone: in a fresh process the case is right"
FATAL = (
    "it says gone: a fresh process dies neither at this call nor where it is made {} times; the "
    "fault depends on more than that, and is not reproducible alone"
)
SLOW = (
    "it says gone: a fresh process answers this call within {:g} s, also where it is made {} "
    "times, so that it may be slow; with --answer-within=10m it has longer"
)
UNTRIED = "it could not be tried in a fresh process"
BROKEN = 2
"""The exit status of a reproducer that cannot be tried, and of a worker that gave none."""


def prove(fault: Fault, client: Any, folder: Path) -> tuple[Path, str]:
    """Write the reproducer of a fault; its path, and what else is to be said of it.

    The client's worker is a fresh one afterwards. A death or a hang is tried beside it, in a
    process that imports the framework itself.
    """
    about = client.about
    with suppress(Inseparable):
        path = write(fault, about, folder, brief=True)
        died = fault.kind in DIED
        if (_alone(path, about.executable, HANGS)[0] if died else _status(path, client)) == THERE:
            return path, ""
    path = write(fault, about, folder)
    if fault.kind in DIED:
        return _fatal(fault, path, client, folder)
    status, said = _tried(path, client)
    if status != GONE:
        return path, f"{UNTRIED}: {said}" if status == BROKEN else ""
    until = time.monotonic() + SEARCHING
    for make, calls in histories(fault, about):
        shown = _fewest(make, calls, about, folder, client, until)
        if shown is not None:
            return shown
    path = write(fault, about, folder)
    if fault.evidence.claim not in COMPARED or len(fault.evidence.feeds) > 1:
        return path, ALONE
    raised = fault.before.raised
    return path, NEVER + (RAISED.format(raised) if raised else "")


def _fatal(fault: Fault, path: Path, client: Any, folder: Path) -> tuple[Path, str]:
    """The reproducer at `path` if the process dies or hangs again, or else one that makes the call
    many times, if that does; and what is to be said of it.
    """
    python, (*before, feed) = client.about.executable, fault.evidence.feeds
    begun = time.monotonic()
    status, said = _alone(path, python, HANGS)
    took = time.monotonic() - begun
    if status == GONE and not before:
        again = _after(fault, (feed,) * (FEW - 1), AGAIN.format(FEW))
        seconds = HANGS + FEW * took  # most of it is the import
        status, said = _alone(write(again, client.about, folder), python, seconds)
        if status == THERE:
            return path, again.details["seen"]
        write(fault, client.about, folder)
    if status == GONE:
        return path, FATAL.format(FEW) if fault.kind == "crash" else SLOW.format(HANGS, FEW)
    return path, f"{UNTRIED}: {said}" if status == BROKEN else ""


def histories(fault: Fault, about: Any) -> Iterator[tuple[Callable[[int], Fault], int]]:
    """What may have left the state that a fault of one call needs, the simplest first.

    Each as the fault after so many calls, and how many there are; nothing where its claim is of
    several calls. On a mutable backend other data of the case are written to the same address,
    if there is one to write to. A runtime of models has one for each operator: a call with other
    attributes is another one's.
    """
    evidence = fault.evidence
    if len(evidence.feeds) > 1 or evidence.claim not in COMPARED:
        return
    (feed,) = evidence.feeds
    varied = variations(fault.case, feed.inputs)
    others = tuple(replace(feed, inputs=arrays, layouts=None) for arrays in varied)
    reuse = bool(about.mutable) and set(feed.layouts or ()) <= {"contiguous"}
    again = min(max(fault.before.calls, FEW), MANY)
    yield lambda _: _after(fault, others, AFTER, reuse=reuse), 1
    yield lambda count: _after(fault, (feed,) * count, AGAIN.format(count + 1)), again
    earlier = tuple(
        replace(f, grads=None)
        for f in fault.before.feeds
        if f is not feed and not (f.op and about.implementation)
    )
    alike = tuple(f for f in earlier if f.op and _shapes(f) == _shapes(feed))
    if alike:
        yield lambda _: _after(fault, alike[-1:], OTHERWISE), 1
    if earlier:
        yield (
            lambda count: _after(fault, earlier[-count:], EARLIER.format(count)),
            len(earlier),
        )


def _shapes(feed: Feed) -> list[Any]:
    return [None if x is None else (x.shape, x.dtype.name) for x in feed.inputs]


def _after(fault: Fault, before: tuple[Feed, ...], seen: str, *, reuse: bool = False) -> Fault:
    """The same fault after other calls; of the same call over and over, in any of them."""
    evidence = fault.evidence
    same = before[0] is evidence.feeds[0]
    later = replace(
        evidence,
        feeds=(*before, *evidence.feeds),
        expected=(*(evidence.expected if same else ((),)) * len(before), *evidence.expected),
        reuse=reuse,
    )
    details = {**fault.details, "seen": seen}
    return type(fault)(fault.check, fault.case, fault.headline, details, fault.judgement, later)


def _fewest(
    make: Callable[[int], Fault], calls: int, about: Any, folder: Path, client: Any, until: float
) -> tuple[Path, str] | None:
    """The reproducer with the fewest calls before the fault that shows it, by bisection.

    `None` where even all of them do not. In time: with as few as were found by then.
    """

    def shows(count: int) -> bool:
        return _status(write(make(count), about, folder), client) == THERE

    if not shows(calls):
        return None
    least, most = 0, calls
    while most - least > 1 and time.monotonic() < until:
        middle = (least + most) // 2
        least, most = (least, middle) if shows(middle) else (middle, most)
    shown = make(most)
    return write(shown, about, folder), shown.details["seen"]


def _status(path: Path, client: Any) -> int | None:
    """The exit status in a fresh process; `None` where a fresh one is not to be had."""
    return _tried(path, client)[0]


def _tried(path: Path, client: Any) -> tuple[int | None, str]:
    """The same, and the last line that it printed, or how the worker failed."""
    if not client.renew():
        return None, ""
    folder = str(trial.folder_of_backend(client.about) or "")
    try:
        script = str(path.resolve()), folder
        answer = client.invoke("d5test.worker.service:run_script", *script)
    except (Unsupported, *FAILURES) as error:
        return BROKEN, str(error).strip().partition("\n")[0]
    finally:
        client.renew()
    if answer is None:
        return _alone(path, client.about.executable)
    status, said = answer
    return int(status), said.strip().rpartition("\n")[2]


def _alone(path: Path, python: str, seconds: float = SECONDS) -> tuple[int, str]:
    """The same as its user runs it; without an answer in these seconds it shows its fault."""
    try:
        verdict, said = trial.tried(path, python, seconds)
    except trial.NoVerdict as reason:
        return BROKEN, str(reason)
    return (THERE if verdict == trial.THERE else GONE), said
