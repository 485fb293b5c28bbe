"""A network in training on a backend: batches in, losses out; the loop runs in the worker.

    session = Session(client, network, Momentum(lr=0.1))
    passed = session.train([dataset.train.batch(indices) for indices in sampler.epoch(0)])
    session.measure([dataset.train.batch(indices)])  # what batch normalisation is tested with
    session.evaluate([dataset.test.batch(indices)])

`kind` is `native`, the framework's own optimizer in the variant that it documents, or
`reference`: our rule on the framework's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from d5test.case import Array
from d5test.networks.executor import describe
from d5test.networks.graph import Graph
from d5test.networks.network import Network
from d5test.networks.specialise import specialised
from d5test.reference.optimizers import Optimizer
from d5test.training.statistics import (
    evaluating,
    held,
    learned,
    measuring,
    normalising,
    together,
)
from d5test.training.variants import variant

Batch = Mapping[str, Array]
ANSWER_SECONDS = 600.0
"""Seconds of a request: some frameworks compile each operator of a network at its first step."""
Form = Callable[[Graph], Graph]
"""What is made of the network for batches of one shape, before it is run."""


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
        self._normalises = bool(normalising(network.graph))

    def train(self, batches: Sequence[Batch]) -> list[Passed]:
        """One step of the optimizer on each batch, in order."""
        found = self._each("train", batches, _as_it_is)
        return [Passed(*passed) for passed in found]

    def measure(self, batches: Sequence[Batch]) -> None:
        """Take the statistics that batch normalisation is tested with from these batches."""
        if self._normalises:
            counts = [len(next(iter(batch.values()))) for batch in batches]
            found = self._each("measure", batches, _measuring)
            made = together(zip(counts, found, strict=True))
            self._ask("feed", held(self.network.graph, made))

    def evaluate(self, batches: Sequence[Batch]) -> list[Passed]:
        """Losses and right answers, nothing learned."""
        found = self._each("evaluate", batches, evaluating if self._normalises else _as_it_is)
        return [Passed(*passed) for passed in found]

    def snapshot(self) -> Snapshot:
        """Everything that the next step depends on, as arrays."""
        return Snapshot(**self._ask("state"))

    def restore(self, snapshot: Snapshot, like: Batch) -> None:
        """Go on from a snapshot; `like` is a batch of the usual shape, to be ready for."""
        self._place(like, _as_it_is)
        self._ask("restore", vars(snapshot))

    def close(self) -> None:
        """Give the memory back where the network runs."""
        if self._number is not None:
            self._ask("end")
        self._number, self._places = None, {}

    def _each(self, verb: str, batches: Iterable[Batch], form: Form) -> list[Any]:
        found: list[Any] = []
        for _, alike in groupby(batches, key=_shapes):
            given = list(alike)
            place = self._place(given[0], form)
            ordered = [[batch[name] for name in self._inputs] for batch in given]
            found += self._ask(verb, place, ordered)
        return found

    def _place(self, batch: Batch, form: Form) -> int:
        """The program for batches of this shape, in this form."""
        key = form, _shapes(batch)
        if self._number is None and form is not _as_it_is:
            self._place(batch, _as_it_is)  # the first program is the one that is trained
        if key not in self._places:
            shapes = {name: x.shape for name, x in batch.items()}
            graph = form(specialised(self.network.graph, shapes))
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
        with self.client.answering_within(ANSWER_SECONDS):
            return self.client.ask("training", verb, self._number, *arguments)


def _as_it_is(graph: Graph) -> Graph:
    return graph


def _measuring(graph: Graph) -> Graph:
    return measuring(graph)[0]


def _shapes(batch: Batch) -> tuple[Any, ...]:
    return tuple(sorted((name, x.shape) for name, x in batch.items()))
