"""What a communicator under test owes, and the one that needs no MPI: virtual ranks.

A communicator is asked with the contributions of all ranks and answers with what all ranks have
afterwards. Under mpirun each process picks its own contribution and hears of the others' results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from d5test.case import FLOATS
from d5test.distributed.allreduce import Allreduce
from d5test.distributed.descent import DISTRIBUTED, Distributed
from d5test.distributed.traffic import Traffic
from d5test.distributed.virtual import run, shuffled
from d5test.numerics.judgement import Judgement
from d5test.reference.collectives import ALLREDUCE, Algorithm, Schedule

Array = NDArray[Any]
Program = Callable[[int, int, Any], Schedule]
"""The schedule of a rank, by rank, size and the array that it works on."""
DTYPES = (*FLOATS, "int64")
"""In which collectives are judged."""


@dataclass(frozen=True)
class Reduced:
    """What each rank has afterwards, and what it has sent if the communicator counts that."""

    results: tuple[Array, ...]
    traffic: tuple[Traffic, ...] | None = None


@dataclass(frozen=True)
class Facts:
    """How a communicator stands in a message."""

    name: str
    version: str
    device: str
    mode: str


class Communicator(Protocol):
    """Ranks that have collectives: their own, or schedules.

    sizes  the numbers of ranks that can be asked for
    drawn  whether cases are drawn by Hypothesis; else they come from a seeded table, since all
           processes have to agree on them
    """

    sizes: Sequence[int]
    drawn: bool

    def about(self, size: int) -> Facts:
        """What it is, with so many ranks."""

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """Those in which it does this algorithm or optimizer; none if it does not."""

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """Have the ranks do it. The contributions, one a rank, are left as they are."""

    def agree(self, judge: Callable[[], Judgement]) -> Judgement:
        """What one process finds, told to all: the judgement, or the fault that it raised."""


class Runner(Communicator, Protocol):
    """A communicator that runs any schedule, not only collectives of its own."""

    optimizers: Mapping[str, Distributed]

    def run(
        self, program: Program, arrays: Sequence[Array], order: int, *, exposed: bool = False
    ) -> Reduced:
        """Have each rank run a schedule on a copy of its array, `exposed` to the others or not."""

    def everywhere(self, found: Mapping[int, Any]) -> list[Any]:
        """What the ranks in this process have found, and the others: rank by rank."""


@dataclass(frozen=True)
class Virtual:
    """Any number of ranks in this process, running these algorithms."""

    algorithms: Mapping[str, Algorithm] = field(default_factory=lambda: ALLREDUCE)
    optimizers: Mapping[str, Distributed] = field(default_factory=lambda: DISTRIBUTED)
    sizes: Sequence[int] = range(1, 10)
    drawn: bool = True

    def about(self, size: int) -> Facts:
        """NumPy does the sums."""
        return Facts("virtual ranks", f"numpy {np.__version__}", f"{size} ranks", "unbuffered")

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """All of them, of every schedule."""
        return DTYPES if subject in (*self.algorithms, *self.optimizers) else ()

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """In the order of delivery that `op` asks for."""
        return self.run(self.algorithms[op.algorithm].schedule, contributions, op.order)

    def run(
        self, program: Program, arrays: Sequence[Array], order: int, *, exposed: bool = False
    ) -> Reduced:
        """In the order of delivery that is asked for."""
        results, size = tuple(x.copy() for x in arrays), len(arrays)
        schedules = [program(rank, size, x) for rank, x in enumerate(results)]
        return Reduced(results, tuple(run(schedules, shuffled(order), results if exposed else ())))

    def everywhere(self, found: Mapping[int, Any]) -> list[Any]:
        """All ranks are here."""
        return [found[rank] for rank in sorted(found)]

    def agree(self, judge: Callable[[], Judgement]) -> Judgement:
        """There is one process only."""
        return judge()
