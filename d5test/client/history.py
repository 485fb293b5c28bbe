"""The calls that a worker has answered since it was fresh: what a fault may depend on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from d5test.case import Case, Operator
from d5test.client.messages import Feed

KEPT = 4 << 20
"""Bytes of inputs that are kept: a reproducer is no place for more."""


@dataclass(frozen=True)
class Before:
    """What came before a fault, its own call included.

    calls   how many calls the worker was asked for, of any operator
    feeds   the last ones of the fault's own operator; those with other attributes have its `op`
    raised  the last exception that one of them ended with; empty if all returned
    """

    calls: int = 0
    feeds: tuple[Feed, ...] = ()
    raised: str = ""


def before(client: object, case: Case) -> Before:
    """What a fault of a case may depend on; nothing where the client keeps no history."""
    history = getattr(client, "history", None)
    return Before() if history is None else history.before(case.op, case.form)


class History:
    """The calls of one worker, the earliest forgotten first."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Operator, str, Feed, int]] = deque()
        self.clear()

    def add(self, op: Operator, form: str, feeds: Sequence[Feed]) -> None:
        """Calls that are about to be made."""
        for feed in feeds:
            size = sum(x.nbytes for x in feed.inputs if x is not None)
            self._calls.append((op, form, feed, size))
            self._bytes += size
            self._count += 1
        while self._bytes > KEPT:
            self._bytes -= self._calls.popleft()[-1]

    def raised(self, error: Exception) -> None:
        """The last call raised."""
        self._raised = str(error).partition("\n")[0]

    def clear(self) -> None:
        """The worker is a fresh one."""
        self._calls.clear()
        self._bytes = 0
        self._count = 0
        self._raised = ""

    def before(self, op: Operator, form: str) -> Before:
        """What a fault of this operator may depend on."""
        feeds = tuple(
            feed if repr(called) == repr(op) else replace(feed, op=called)
            for called, by, feed, _ in self._calls
            if (called.name, by) == (op.name, form)
        )
        return Before(self._count, feeds, self._raised)
