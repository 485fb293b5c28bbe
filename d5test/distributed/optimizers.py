"""Distributed optimizers by name, and those in which every rank steps alike.

Averaged is always over all contributions, so that with minibatches of one size those in
`CONSISTENT` take the steps that the base optimizer takes on the joined minibatch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from d5test.distributed.averaging import FederatedAveraging, ModelAveraging, NeighbourAveraging
from d5test.distributed.optimizer import DistributedOptimizer, Gradient, Local
from d5test.distributed.servers import (
    Centralised,
    ElasticAveraging,
    Hierarchical,
    OneSided,
    Sharded,
    StalenessAware,
    StaleSynchronous,
)
from d5test.reference.collectives import ALLREDUCE, Schedule
from d5test.reference.compressors import QSGD, Compressor, PowerSGD, TopK
from d5test.reference.optimizers import Optimizer


@dataclass(frozen=True)
class Decentralised(DistributedOptimizer):
    """Every rank has the mean gradient, by allreduce, and steps by itself.

    Consistent, since an allreduce gives all ranks the same bits.
    """

    algorithm: str = "ring"

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The slots of the base optimizer are the same at all ranks."""
        local, allreduce = Local(self.base), ALLREDUCE[self.algorithm].schedule
        for step in range(steps):
            g = gradient(step, w)
            yield from allreduce(rank, size, g)
            local.step(w, g / size)

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: those of the allreduce."""
        return ALLREDUCE[self.algorithm].items(size, n) * steps


@dataclass(frozen=True)
class GrowingMinibatch(DistributedOptimizer):
    """As `Decentralised`, but a step is on more and more minibatches, whose mean it takes.

    Where training would divide the learning rate by `factor`, each rank's share of a step has
    `factor` times the samples: Smith et al., ICLR 2018 (arXiv 1711.00489), section 2.

    after   steps after which a step has more minibatches
    most    minibatches that a step has at most
    """

    after: int = 1
    factor: int = 2
    most: int = 4

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The slots of the base optimizer are the same at all ranks."""
        local, allreduce = Local(self.base), ALLREDUCE["ring"].schedule
        for part in self.parts(steps):
            g = gradient(part[0], w)
            for step in part[1:]:
                g = g + gradient(step, w)
            yield from allreduce(rank, size, g)
            local.step(w, g / (size * len(part)))

    def parts(self, steps: int) -> Iterator[range]:
        """The minibatches of each step, of `steps` in all."""
        first, many, made = 0, 1, 0
        while first < steps:
            yield range(first, min(first + many, steps))
            first, made = first + many, made + 1
            if made % self.after == 0:
                many = min(many * self.factor, self.most)

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: an allreduce a step."""
        return ALLREDUCE["ring"].items(size, n) * len(list(self.parts(steps)))


@dataclass(frozen=True)
class Compressed(DistributedOptimizer):
    """Every rank has the mean of what the ranks' gradients are compressed to, and steps by itself.

    Replicas are equal, since the mean has the same bits at all ranks. With error feedback a step
    has what earlier ones left out: Stich et al., NeurIPS 2018; Karimireddy et al., ICML 2019.
    """

    compressor: Compressor = field(default_factory=TopK)
    seed: int = 0

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The slots of the base optimizer are the same at all ranks, the residuals are not."""
        local, state = Local(self.base), self.compressor.start(len(w), w.dtype, rank, self.seed)
        for step in range(steps):
            g = gradient(step, w)
            yield from self.compressor.mean(rank, size, g, state)
            local.step(w, g)

    def nbytes(self, size: int, w: Any, steps: int) -> int:
        """Those of the compressor, where they do not depend on the gradients' values."""
        return self.compressor.sent([w] * size) * steps


Distributed = Callable[[Optimizer], DistributedOptimizer]
"""A distributed optimizer, over any base optimizer."""
CONSISTENT: Mapping[str, Distributed] = {
    "centralised": Centralised,
    "centralised-hierarchical": Hierarchical,
    "centralised-sharded": Sharded,
    "decentralised": Decentralised,
    "decentralised-halving_doubling": partial(Decentralised, algorithm="halving_doubling"),
}
"""Those that take the steps of the base optimizer on the joined minibatch, with equal replicas."""
GROWING: Mapping[str, Distributed] = {"growing_minibatch": GrowingMinibatch}
"""Those with equal replicas, whose later steps are on several joined minibatches."""
COMPRESSED: Mapping[str, Distributed] = {
    "compressed-topk": partial(Compressed, compressor=TopK(share=0.1)),
    "compressed-qsgd-4": partial(Compressed, compressor=QSGD(bits=4)),
    "compressed-powersgd": partial(Compressed, compressor=PowerSGD(columns=32)),
}
"""Those whose replicas are equal, and whose steps are as exact as their compressor."""
AVERAGING: Mapping[str, Distributed] = {
    "neighbour_averaging": NeighbourAveraging,
    "neighbour_averaging-torus": partial(NeighbourAveraging, graph="torus"),
    "neighbour_averaging-random_regular": partial(NeighbourAveraging, graph="random_regular"),
    "model_averaging": ModelAveraging,
    "local_sgd-4": partial(ModelAveraging, every=4),
    "post_local_sgd": partial(ModelAveraging, every=4, together=2),
}
"""Those whose replicas differ, and are averaged with equal weights."""
FEDERATED: Mapping[str, Distributed] = {"federated_averaging": FederatedAveraging}
"""Those of which some ranks take part in a round."""
SERVERS: Mapping[str, Distributed] = {
    "stale_synchronous-0": partial(StaleSynchronous, bound=0),
    "stale_synchronous-2": partial(StaleSynchronous, bound=2),
    "asynchronous": StaleSynchronous,
}
"""Those with a server and stale reads."""
AWARE: Mapping[str, Distributed] = {"staleness_aware": StalenessAware}
"""Those with a server whose steps depend on how stale a gradient is."""
ELASTIC: Mapping[str, Distributed] = {
    "elastic_averaging-0": partial(ElasticAveraging, bound=0),
    "elastic_averaging-2": partial(ElasticAveraging, bound=2),
    "elastic_averaging": ElasticAveraging,
}
"""Those with a centre to which workers are tied."""
ONE_SIDED: Mapping[str, Distributed] = {
    "one_sided": OneSided,
    "one_sided-2": partial(OneSided, bound=2),
}
"""Those with parameters that workers reach by themselves, and stale reads."""
NAMED: tuple[str, ...] = (
    "centralised-hierarchical",
    "growing_minibatch",
    "neighbour_averaging-torus",
    "neighbour_averaging-random_regular",
    "local_sgd-4",
    "post_local_sgd",
    "staleness_aware",
    "elastic_averaging-0",
    "elastic_averaging-2",
)
"""Those that train a network only where --optimizer names them.

Others of their kind do always; one whose minibatches grow makes too few steps for a recipe.
"""
DISTRIBUTED: Mapping[str, Distributed] = {
    **CONSISTENT,
    **GROWING,
    **COMPRESSED,
    **AVERAGING,
    **FEDERATED,
    **SERVERS,
    **AWARE,
    **ELASTIC,
    **ONE_SIDED,
}
"""By name."""
