"""A network in training on a backend: batches in, losses out; the loop runs in the worker.

    session = Session(client, network, Momentum(lr=0.1))
    passed = session.train([dataset.train.batch(indices) for indices in sampler.epoch(0)])
    session.evaluate([dataset.test.batch(indices)])

`kind` is `native`, the framework's own optimizer in the variant that it documents, or
`reference`: our rule on the framework's tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from d5test.case import Array
from d5test.networks.executor import describe
from d5test.networks.graph import Graph
from d5test.networks.network import Network
from d5test.networks.specialise import specialised
from d5test.reference.optimizers import Optimizer
from d5test.training.variants import variant

Batch = Mapping[str, Array]
PATIENCE = 600.0
"""Seconds of a request: some frameworks compile each operator of a network at its first step."""
STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs of operators that are measured, not learned."""


class Passed(NamedTuple):
    """One batch: its mean loss, how many samples were right, and the seconds that it took."""

    loss: float
    right: int
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """What the next step depends on: steps taken, parameters, and the slots of each."""

    t: int
    parameters: Mapping[str, Array]
    slots: Mapping[str, tuple[Array, ...]]


class Session:
    """A network whose parameters live, and are changed, where the backend of `client` runs."""

    def __init__(
        self,
        client: Any,
        network: Network,
        optimizer: Optimizer,
        kind: str = "native",
        loss: str = "loss",
        scores: str = "scores",
        labels: str = "labels",
    ) -> None:
        self.client, self.network = client, network.copy()
        given = variant(client, optimizer.name) if kind == "native" else {}
        self.optimizer = optimizer.with_(**given)
        self.kind, self.ends = kind, {"loss": loss, "scores": scores, "labels": labels}
        self._number: int | None = None
        self._places: dict[Any, int] = {}
        self._inputs = tuple(network.inputs)

    def train(self, batches: Sequence[Batch]) -> list[Passed]:
        """One step of the optimizer on each batch, in order."""
        return self._each("train", batches)

    def evaluate(self, batches: Sequence[Batch]) -> list[Passed]:
        """Losses and right answers, nothing learned."""
        return self._each("evaluate", batches)

    def snapshot(self) -> Snapshot:
        """Everything that the next step depends on, as arrays."""
        return Snapshot(**self._ask("state"))

    def restore(self, snapshot: Snapshot, like: Batch) -> None:
        """Go on from a snapshot; `like` is a batch of the usual shape, to be ready for."""
        self._place(like)
        self._ask("restore", vars(snapshot))

    def close(self) -> None:
        """Give the memory back where the network runs."""
        if self._number is not None:
            self._ask("end")
        self._number, self._places = None, {}

    def _each(self, verb: str, batches: Iterable[Batch]) -> list[Passed]:
        passed: list[Passed] = []
        for _, alike in groupby(batches, key=_shapes):
            given = list(alike)
            place = self._place(given[0])
            ordered = [[batch[name] for name in self._inputs] for batch in given]
            passed += [Passed(*found) for found in self._ask(verb, place, ordered)]
        return passed

    def _place(self, batch: Batch) -> int:
        """The program for batches of this shape."""
        key = _shapes(batch)
        if key not in self._places:
            shapes = {name: x.shape for name, x in batch.items()}
            graph = specialised(self.network.graph, shapes)
            described = describe(graph, self.network.graph, as_model=False)
            if self._number is None:
                setting = self._setting(graph)
                self._number = self.client.ask("training", "begin", described, setting)
                self._places[key] = 0
            else:
                self._places[key] = self._ask("plan", described)
        return self._places[key]

    def _setting(self, graph: Graph) -> dict[str, Any]:
        return {
            **self.ends,
            "learned": learned(graph),
            "kind": self.kind,
            "rule": self.optimizer.name,
            "hyperparameters": vars(self.optimizer),
        }

    def _ask(self, verb: str, *arguments: Any) -> Any:
        with self.client.patient(PATIENCE):
            return self.client.ask("training", verb, self._number, *arguments)


def learned(graph: Graph) -> tuple[str, ...]:
    """The parameters that gradients reach: all but those that hold statistics."""
    statistics = {
        tensor
        for node in graph.nodes
        for position, tensor in enumerate(node.inputs)
        if position in STATISTICS.get(node.kind, ())
    }
    return tuple(name for name in graph.parameters if name not in statistics)


def _shapes(batch: Batch) -> tuple[Any, ...]:
    return tuple(sorted((name, x.shape) for name, x in batch.items()))
