"""What a rank has sent, and what can go wrong on the way: the words of every communicator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from d5test.reference.collectives import ANY, Accumulate, Get, Recv, Step, Steps


@dataclass
class Traffic:
    """Messages and bytes that one rank has sent, or moved to and from another rank's array."""

    messages: int = 0
    bytes: int = 0

    def count(self, data: Any) -> None:
        """One more message, or one more access to another rank's array."""
        self.messages += 1
        self.bytes += volume(data)


class Stuck(Exception):
    """No rank can go on. `whereabouts` says of each what it waits for."""

    def __init__(self, whereabouts: list[str]) -> None:
        super().__init__("; ".join(f"rank {r}: {words}" for r, words in enumerate(whereabouts)))
        self.whereabouts = whereabouts


class WrongSize(Exception):
    """A message and the room for it differ in size."""

    def __init__(self, source: int, to: int, sent: int | str, room: int, number: int) -> None:
        super().__init__(
            f"rank {source} sends {sent} bytes, rank {to} has room for {room} in its step {number}"
        )


def volume(data: Any) -> int:
    """Bytes of an array of any kind."""
    return int(data.size) * int(data.dtype.itemsize)


def together(steps: Steps) -> tuple[Step, ...]:
    """What a schedule yields, as a tuple."""
    return steps if isinstance(steps, tuple) else (steps,)


def in_words(step: Step) -> str:
    """What a rank waits for in this step."""
    if isinstance(step, Get | Accumulate):
        return f"to access the array of rank {step.target}"
    if isinstance(step, Recv):
        source = "any rank" if step.source == ANY else f"rank {step.source}"
        return f"to receive {volume(step.into)} bytes from {source}"
    return f"to send {volume(step.data)} bytes to rank {step.to}"
