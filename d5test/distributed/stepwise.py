"""Distributed optimizers written step by step, in the form of the Deep500 slides, under mpirun.

Whoever does not want to write a schedule writes `step(inputs)`, with blocking collectives:

    optimizer = ConsistentNeighbors(Adam(), executor, "loss", Communication(MPI.COMM_WORLD))
    for inputs in minibatches:
        outputs = optimizer.step(inputs)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5test.case import Array
from d5test.distributed.averaging import reduce_from
from d5test.distributed.communicator import Program
from d5test.distributed.graphs import ring
from d5test.distributed.mpi import run
from d5test.distributed.optimizer import Local
from d5test.reference.collectives import ALLREDUCE
from d5test.reference.optimizers import Optimizer


class Communication:
    """Blocking collectives on an MPI communicator. Arrays have any shape, and stay as they are."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank: int = comm.rank
        self.size: int = comm.size

    @property
    def neighborhood(self) -> int:
        """Ranks whose arrays `reduce_from_neighbors` adds: 3; on 2 ranks 2, on 1 rank 1."""
        return len(ring(self.rank, self.size)) + 1

    def reduce_from_neighbors(self, x: Array) -> Array:
        """The sum over this rank and its neighbours in a ring."""
        return self._result(lambda rank, size, x: reduce_from(ring(rank, size), x), x)

    def allreduce(self, x: Array, algorithm: str = "ring") -> Array:
        """The sum over all ranks, by an algorithm of `ALLREDUCE`."""
        return self._result(ALLREDUCE[algorithm].schedule, x)

    def _result(self, program: Program, x: Array) -> Array:
        y = np.array(x).ravel()
        run(program(self.rank, self.size, y), self.comm)
        return y.reshape(np.shape(x))


@dataclass
class StepwiseOptimizer:
    """What trains the network of `executor`, one minibatch at a time."""

    base: Optimizer
    executor: Any
    loss: str
    communication: Communication
    _local: dict[str, Local] = field(default_factory=dict, init=False)

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Train on this rank's minibatch; the network's outputs before the step."""
        raise NotImplementedError

    def update_rule(self, grad: Array, param: Array, name: str) -> Array:
        """The parameter `name` after a step of the base optimizer, which keeps its state."""
        new = np.array(param)
        self._local.setdefault(name, Local(self.base)).step(new, grad)
        return new


class ConsistentNeighbors(StepwiseOptimizer):
    """Parameters are averaged with the neighbours', then moved by the rank's own gradient.

    Lian et al., NIPS 2017 (arXiv 1705.09056), algorithm 1: the same steps, bit for bit, as those
    of `d5test.distributed.averaging.NeighbourAveraging`, which says what is wrong in the slides'
    listing of this name.
    """

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Train on this rank's minibatch; the network's outputs before the step."""
        output: dict[str, Array]
        output, gradients = self.executor.inference_and_backprop(inputs, self.loss)
        for name, param in self.executor.fetch().items():
            mean = self.communication.reduce_from_neighbors(param)
            mean = mean / self.communication.neighborhood
            param = self.update_rule(gradients[name], mean, name)
            self.executor.feed(**{name: param})
        return output
