"""Simulators that are wrong on purpose, each in one way."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from d5test.simulation import events, rounds
from d5test.simulation.events import Timeline, simulate
from d5test.simulation.machine import Machine


def latency_once(*args: Any, **more: Any) -> Timeline:
    """As in a formula that forgets the steps: one latency, however many messages wait."""
    program, size, items, machine = args
    fast = simulate(program, size, items, replace(machine, latency=0), **more)
    return replace(fast, finish=[t + machine.latency for t in fast.finish])


def half_the_bytes(*args: Any, **more: Any) -> Timeline:
    """As if both directions shared what is counted once."""
    program, size, items, machine = args
    return simulate(program, size, items, replace(machine, per_byte=machine.per_byte / 2), **more)


def free_additions(*args: Any, **more: Any) -> Timeline:
    program, size, items, machine = args
    return simulate(program, size, items, replace(machine, addition=0), **more)


def _patched(name: str, change: Callable[[Any], Any]) -> Callable[..., Timeline]:
    def wrong(*args: Any, **more: Any) -> Timeline:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(events, name, change(getattr(events, name)))
            return simulate(*args, **more)

    return wrong


def _receiver_takes_all_at_once(taken: Any) -> Any:
    def wrong(rank: Any, number: int, machine: Machine) -> bool:
        rank.into = 0.0
        return bool(taken(rank, number, machine))

    return wrong


def _sender_sends_all_at_once(posted: Any) -> Any:
    def wrong(rank: Any, *args: Any) -> Any:
        rank.out = 0.0
        return posted(rank, *args)

    return wrong


def _no_overhead_of_receivers(taken: Any) -> Any:
    def wrong(rank: Any, number: int, machine: Machine) -> bool:
        return bool(taken(rank, number, replace(machine, overhead=0)))

    return wrong


def _overhead_after_arrival(taken: Any) -> Any:
    def wrong(rank: Any, number: int, machine: Machine) -> bool:
        done = bool(taken(rank, number, replace(machine, overhead=0)))
        rank.core += machine.overhead * done
        return done

    return wrong


def unlinked(*args: Any, links: Any = None, **more: Any) -> Timeline:
    """Links that nobody shares."""
    return simulate(*args, **more)


SIMULATORS: Mapping[str, Callable[..., Timeline]] = {
    "latency_once": latency_once,
    "half_the_bytes": half_the_bytes,
    "free_additions": free_additions,
    "receiver_takes_all_at_once": _patched("_taken", _receiver_takes_all_at_once),
    "sender_sends_all_at_once": _patched("_posted", _sender_sends_all_at_once),
    "no_overhead_of_receivers": _patched("_taken", _no_overhead_of_receivers),
    "overhead_after_arrival": _patched("_taken", _overhead_after_arrival),
    "unlinked": unlinked,
}


def a_step_too_few(fleet: rounds.Fleet) -> None:
    """A ring that goes round once."""
    one = rounds.Fleet(1, fleet.items, fleet.machine)
    chunk = -(-fleet.items // fleet.size)
    rounds.repeat(one, lambda: one.exchange(one.every, one.every, chunk), fleet.size - 1)
    fleet.core[:] = one.core


def whole_arrays(fleet: rounds.Fleet) -> None:
    """Recursive doubling in the place of halving."""
    rounds.recursive_doubling(fleet)


def not_folded(fleet: rounds.Fleet) -> None:
    """The ranks beyond a power of two are forgotten."""
    members = fleet.every[: 1 << fleet.size.bit_length() - 1]
    rounds.doubling(fleet, members)


def unserved(fleet: rounds.Fleet) -> None:
    """A star whose centre takes all contributions at the same time."""
    others = fleet.every[1:]
    for other in others:
        fleet.into[0] = 0
        fleet.exchange(others[other - 1 : other], fleet.every[:1], fleet.items)
        fleet.add(fleet.every[:1], fleet.items)
    for other in others:
        fleet.exchange(fleet.every[:1], others[other - 1 : other], fleet.items)


def smallest_chunk(fleet: rounds.Fleet) -> None:
    """A ring that rounds its chunks down."""
    less = rounds.Fleet(fleet.size, fleet.items // fleet.size * fleet.size, fleet.machine)
    rounds.ring(less)
    fleet.core[:] = less.core


def shift_of_the_first_step(fleet: rounds.Fleet) -> None:
    """A pipeline in which each rank is taken to be later by what the first one was."""
    few = rounds.Fleet(min(fleet.size, 3), fleet.items, fleet.machine)
    rounds.pipelined(few)
    fleet.core[:] = few.core.max(axis=0) * (fleet.size - 1) / (few.size - 1)


class _Late(rounds.Fleet):
    """The overhead of a receive begins on arrival."""

    def exchange(self, senders: Any, receivers: Any, items: Any) -> None:
        self.machine = replace(machine := self.machine, overhead=0)
        self.core[senders] += machine.overhead
        super().exchange(senders, receivers, items)
        self.core[receivers] += machine.overhead
        self.machine = machine


def overhead_after_arrival(fleet: rounds.Fleet) -> None:
    late = _Late(fleet.size, fleet.items, fleet.machine)
    rounds.recursive_doubling(late)
    fleet.core[:] = late.core


def nobody_is_busy(fleet: rounds.Fleet) -> None:
    """A ring whose largest chunk decides even if nobody waits for it."""
    more = -(-fleet.items // fleet.size) * fleet.size
    rounds.ring(full := rounds.Fleet(fleet.size, more, fleet.machine))
    fleet.core[:] = full.core


ROUNDS: Mapping[str, tuple[str, Callable[[rounds.Fleet], None]]] = {
    "a_step_too_few": ("ring", a_step_too_few),
    "smallest_chunk": ("ring", smallest_chunk),
    "whole_arrays": ("halving_doubling", whole_arrays),
    "not_folded": ("recursive_doubling", not_folded),
    "overhead_after_arrival": ("recursive_doubling", overhead_after_arrival),
    "nobody_is_busy": ("ring", nobody_is_busy),
    "unserved": ("star", unserved),
    "shift_of_the_first_step": ("pipelined", shift_of_the_first_step),
}
"""By fault: the algorithm, and what takes its place."""
