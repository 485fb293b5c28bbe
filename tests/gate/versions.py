"""Two versions of nothing: what is timed are numbers, as noisy as they are asked to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from d5test.client.messages import Raised, Round
from d5test.gate.corpus import Frozen
from d5test.timed import Subject
from tests.compare.files import RIGHT, record

LOOPS = 100
TIMES = (
    "seconds", "cpu", "preempted", "preempted_rounds", "loops", "output_bytes", "memory", "cold",
    "control", "valid", "median", "median_interval_95", "flop_per_second", "bytes_per_second",
)  # fmt: skip
"""What a case of the corpus has not."""
IN_CLASS = {**RIGHT, "arithmetic": "P"}
"""How a case of the corpus is judged."""


@dataclass
class World:
    """A machine.

    noise    of a round, as a share: rounds are longer by the size of a normal number of that
    process  of a process, and of a block in it, as a share: each has its own memory layout
    slower   quotients of the new version, by benchmark; `fatter` likewise of its memory
    broken   why the new version cannot run a benchmark; `wrong`: its judgement
    lasts    processes that are opened until it cannot
    log      who did what
    """

    noise: float = 0.02
    process: float = 0.003
    slower: Mapping[str, float] = field(default_factory=dict)
    fatter: Mapping[str, float] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=dict)
    lasts: int = 0
    threads: int = 2
    seed: int = 0
    log: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    @contextmanager
    def open(self, arm: str, backend: str) -> Iterator[Process]:
        """A fresh process of an arm."""
        self.log.append(("open", arm, backend))
        try:
            yield Process(self, arm)
        finally:
            self.log.append(("close", arm))

    def subjects(self, count: int) -> list[Subject]:
        """So many benchmarks."""
        return [Subject(f"suite.py::test_time[b{k}]", "mine", self._made(k)) for k in range(count)]

    def cases(self, count: int) -> list[Frozen]:
        """So many cases of the corpus."""
        names = [f"c{k}" for k in range(count)]
        return [
            Frozen(f"suite.py::test_corpus[{name}]", "mine", partial(self._judged, name))
            for name in names
        ]

    def _judged(self, name: str, process: Process) -> tuple[dict[str, Any], None]:
        self.log.append(("judge", process.arm, name))
        new = process.arm == "new"
        if new and name in self.broken:
            raise Raised("RuntimeError", self.broken[name], "", "call")
        judgement = self.wrong.get(name, IN_CLASS) if new else IN_CLASS
        found = record(1e-3, problem=name, judgement=judgement, shapes=[[3], [int(name[1:])]])
        kept = {key: value for key, value in found.items() if key not in TIMES}
        return {**kept, "corpus": {"version": 1, "hash": "c0ffee", "data": "da7a"}}, None

    def _made(self, k: int) -> Callable[[Any, str], Any]:
        return lambda client, _: Numbers(client, f"b{k}", 1e-5 * (k + 1))


class Process:
    """A worker."""

    def __init__(self, world: World, arm: str) -> None:
        self.world, self.arm = world, arm
        self.about = SimpleNamespace(threads=world.threads, pid=len(world.log))
        self.layout = 1 + world.process * abs(world.draw.normal())
        self.pad = 0.0

    def invoke(self, target: str, size: int) -> None:
        self.world.log.append(("pad", self.arm, str(size)))
        self.pad = self.world.process * abs(self.world.draw.normal())


class Numbers:
    """A benchmark in a process."""

    def __init__(self, process: Process, name: str, seconds: float) -> None:
        self.process, self.world, self.name = process, process.world, name
        new = process.arm == "new"
        self.seconds = seconds * process.layout * (self.world.slower.get(name, 1) if new else 1)
        self.memory = int(10**8 * (self.world.fatter.get(name, 1) if new else 1))
        self.new = new

    def start(self, loops: int | None = None) -> int:
        opened = sum(entry[0] == "open" for entry in self.world.log)
        if self.new and self.name in self.world.broken and opened > self.world.lasts:
            raise Raised("RuntimeError", self.world.broken[self.name], "", "call")
        self.world.log.append(("start", self.process.arm, self.name, str(loops)))
        return loops or LOOPS + len(self.world.log)

    def round(self) -> Round:
        self.world.log.append(("round", self.process.arm, self.name))
        disturbed = 1 + self.world.noise * abs(self.world.draw.normal())
        return Round(self.seconds * (1 + self.process.pad) * disturbed, self.seconds, 0)

    def record(self, rounds: Sequence[Round], loops: int) -> dict[str, Any]:
        judgement = self.world.wrong.get(self.name, RIGHT) if self.new else RIGHT
        seconds = [r.wall for r in rounds]
        resident = self.memory + int(self.world.draw.integers(10**5))
        return record(
            min(seconds), problem=self.name, seconds=seconds, cpu=seconds, loops=loops,
            preempted=[0] * len(seconds), judgement=judgement,
            memory={"resident": resident, "device": None},
        )  # fmt: skip

    def close(self) -> None:
        self.world.log.append(("done", self.process.arm, self.name))
