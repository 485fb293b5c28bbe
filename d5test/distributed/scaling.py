"""A step of parallel training on the first few ranks: timed, and what a run writes of it.

Requirements: nothing between the ranks and MPI; the other ranks do nothing. What was timed is
checked afterwards: replicas have the same bits, and have moved; what was sent is what the
formula says.

As Hoefler and Belli ask for (Scientific Benchmarking of Parallel Computing Systems, SC'15): the
base case stands beside every speedup, with its absolute performance (rule 1); costs are summed up
before a ratio is made of them, and no ratios are averaged (rules 3 and 4).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from d5test.distributed.communicator import Traffic
from d5test.distributed.fleet import Replica
from d5test.distributed.learning import Task
from d5test.metric import TIME, Sample, measured, median_interval
from d5test.networks.executor import Executor
from d5test.training.samplers import Indices

SCHEMA = 1
KEY = "scaling"
"""Where an entry stands in pytest-benchmark's `extra_info`."""
MODES = ("strong", "weak")
JOINED, OWN = 64, 16
"""Samples of all ranks together in strong scaling, and of each rank in weak scaling."""


@dataclass(frozen=True)
class Scaling:
    """A step of a distributed optimizer, or of an engine, on `ranks` ranks.

    optimizer   or engine, and its mesh if that has several axes
    samples     of all ranks together, in a step
    parameters  that are trained
    seconds     wall time of each step, by the slowest rank
    compute     of each rank: wall seconds a step in its own gradient, waiting for nobody; of an
                engine, seconds of its processor
    messages    that each rank sent in a step; None where nobody sees them
    bytes       likewise; of an engine, those of numbers that it gave to collectives
    overlap     of an engine of data parallelism where each rank has a core: median seconds of a
                `step`, of `compute` and of `communication` by themselves, in turns; how much of
                the shorter one is `hidden` (0 nothing, 1 all of it), and `hidden_interval_95`
    base        the `summary` of one rank; None where it was not measured in this run
    """

    optimizer: str
    mode: str
    ranks: int
    samples: int
    network: str
    parameters: int
    seconds: Sequence[float]
    compute: Sequence[float]
    messages: Sequence[int] | None
    bytes: Sequence[int] | None
    backend: Mapping[str, Any]
    communicator: str
    base: Mapping[str, Any] | None = None
    overlap: Mapping[str, Any] | None = None
    schema: int = SCHEMA

    @property
    def summary(self) -> dict[str, Any]:
        """Its performance: what stands as the base case beside other entries."""
        sample = Sample(TIME, tuple(self.seconds))
        return {
            "ranks": self.ranks,
            "samples": self.samples,
            "median": sample.median,
            "median_interval_95": median_interval(sample.values),
            "samples_per_second": self.samples / sample.median,
        }

    @property
    def load_imbalance(self) -> float:
        """The longest of the ranks' own computations over their mean: 1 is balanced."""
        return float(np.max(self.compute) / np.mean(self.compute))

    @property
    def speedup(self) -> float | None:
        """Samples per second, over those of the base case: of weak scaling the scaled speedup."""
        if self.base is None:
            return None
        return float(self.summary["samples_per_second"] / self.base["samples_per_second"])

    def to_json(self) -> dict[str, Any]:
        """The entry."""
        return {
            **asdict(self),
            **self.summary,
            "load_imbalance": self.load_imbalance,
            "speedup": self.speedup,
            **{
                f"{name}_sent": int(np.sum(counts))
                for name, counts in (("messages", self.messages), ("bytes", self.bytes))
                if counts is not None
            },
        }

    def in_words(self) -> str:
        """One line: time, rate, the speedup with its base case, imbalance and traffic."""
        summary = self.summary
        low, high = summary["median_interval_95"] or (np.nan, np.nan)
        over = "no base case"
        if self.base is not None:
            rate = self.base["samples_per_second"]
            over = f"{self.speedup:5.2f} x {rate:.0f} sample/s of 1 rank"
        hidden = ""
        if self.overlap and (interval := self.overlap["hidden_interval_95"]):
            hidden = "overlap {:.2f} [{:.2f}, {:.2f}]  ".format(self.overlap["hidden"], *interval)
        sent = f"{np.sum(self.bytes)} bytes  " if self.bytes is not None else ""
        return (
            f"{measured(summary['median'], TIME):>10}  "
            f"[{measured(low, TIME)}, {measured(high, TIME)}]  "
            f"{summary['samples_per_second']:8.0f} sample/s  {over}  "
            f"imbalance {self.load_imbalance:.2f}  {hidden}{sent}"
            f"{self.optimizer} {self.mode}, ranks: {self.ranks}"
        )


def sizes(world: int) -> tuple[int, ...]:
    """The powers of two up to `world`, and `world`."""
    return tuple(sorted({1 << k for k in range(world.bit_length())} | {world}))


def minibatch(mode: str, rank: int, ranks: int, samples: int) -> Indices:
    """Which of the training samples a rank sees: the same in each step."""
    if mode == "strong":
        return np.array_split(np.arange(JOINED, dtype=np.int64) % samples, ranks)[rank]
    return (rank * OWN + np.arange(OWN, dtype=np.int64)) % samples


class Measured(NamedTuple):
    """What a rank measured of itself: seconds a step in its own gradient, messages and bytes."""

    compute: float
    messages: int
    bytes: int
    replica: str
    moved: bool


class TimedStep:
    """Call it: it takes one step on the first `task.size` ranks of `comm`, an `Mpi`.

    Each call begins with fresh slots of the base optimizer, where the last one has led to.
    """

    def __init__(self, comm: Any, client: Any, task: Task, name: str, mode: str) -> None:
        self.comm, self.part, self.size = comm, comm.part(task.size), task.size
        self.optimizer = task.optimizer(comm, name)
        self.replica = Replica(Executor(client, task.recipe.network(task.seed)), "loss")
        self.start = self.replica.parameters()
        from d5test.distributed.mpi import run  # MPI is there only where mpirun started the ranks

        self._run = run
        self._w, self._traffic = self.start.copy(), Traffic()
        if self.part is not None:
            train = task.dataset.train
            batch = train.batch(minibatch(mode, self.part.rank, task.size, len(train)))
            self._gradient = self.replica.gradient(lambda step: batch)

    def __call__(self) -> None:
        """On this rank, if it takes part."""
        if self.part is not None:
            schedule = self.optimizer.train(self.part.rank, self.size, self._w, self._gradient, 1)
            self._traffic = self._run(schedule, self.part)

    def begin(self) -> None:
        """Forget the steps so far: they made the framework ready."""
        self.replica.begin()

    def measured(self) -> list[Measured]:
        """Of the ranks that took part, sent to all."""
        replica, traffic = self.replica, self._traffic
        own = Measured(
            replica.seconds / max(replica.gradients, 1),
            traffic.messages,
            traffic.bytes,
            hashlib.sha256(self._w.tobytes()).hexdigest(),
            not np.array_equal(self._w, self.start) and bool(np.isfinite(self._w).all()),
        )
        every: list[Measured] = self.comm.everywhere({self.comm.comm.rank: own})
        return every[: self.size]

    def wrong(self, measured: list[Measured]) -> str:
        """Why the time of these steps means nothing; empty if they were right."""
        want = self.optimizer.nbytes(self.size, self.start, steps=1)
        sent = sum(own.bytes for own in measured)
        if not all(own.moved for own in measured):
            return "the parameters have not moved, or not to numbers"
        if len({own.replica for own in measured}) > 1:
            return "the replicas differ after the timed steps"
        return "" if sent == want else f"{sent} bytes were sent in a step, not {want}"

    def close(self) -> None:
        """Give back what it has taken."""
        self.replica.executor.unload()
        if self.part is not None:
            self.part.Free()
