"""A network in training on a backend: batches in, losses out; the loop runs in the worker.

    session = Session(client, network, Momentum(lr=0.1))
    passed = session.train([dataset.train.batch(indices) for indices in sampler.epoch(0)])
    session.measure([dataset.train.batch(indices)])  # what batch normalisation is tested with
    session.evaluate([dataset.test.batch(indices)])

`kind` is `native`, the framework's own optimizer in the variant that it documents, or
`reference`: our rule on the framework's tensors.

Batch normalisation is tested with statistics of training data, not of the test's batch.
In training each node normalises by the mean and variance of its batch. A test must not depend on
which samples it is done together with: there, mean and variance are those of samples of the
training split (Wu and Johnson, arXiv 2105.07576, section 3.3, PreciseBN). They are measured before
each test and follow from parameters and samples alone: no framework's way to keep running averages
is in them, and they are the same for every optimizer and any number of ranks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from d5test.case import Array
from d5test.networks.executor import describe
from d5test.networks.graph import Graph, Node
from d5test.networks.network import Network
from d5test.networks.specialise import shapes_and_types, specialised
from d5test.reference.operators.elementwise import Mul, Sub
from d5test.reference.operators.normalisation import BatchNormalization
from d5test.reference.operators.reductions import ReduceMean
from d5test.reference.optimizers import Optimizer
from d5test.training.step import variant

Batch = Mapping[str, Array]
ANSWER_SECONDS = 600.0
"""Seconds of a request: some frameworks compile each operator of a network at its first step."""
ENDS = {"loss": "loss", "scores": "scores", "labels": "labels"}
"""Names of a network's outputs, and of the input that is learned."""
STATISTICS = slice(3, 5)
"""Mean and variance among the inputs of a batch normalisation."""
Form = Callable[[Graph], Graph]
"""What is made of the network for batches of one shape, before it is run."""


class BatchResult(NamedTuple):
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
        self, client: Any, network: Network, optimizer: Optimizer, kind: str = "native"
    ) -> None:
        self.client, self.network = client, network.copy()
        self.optimizer = variant(client, optimizer, kind)
        self.kind = kind
        self._number: int | None = None
        self._places: dict[Any, int] = {}
        self._normalises = bool(normalising(network.graph))

    def train(self, batches: Sequence[Batch]) -> list[BatchResult]:
        """One step of the optimizer on each batch, in order."""
        return [BatchResult(*passed) for passed in self._each("train", batches)]

    def measure(self, batches: Sequence[Batch]) -> None:
        """Take the statistics that batch normalisation is tested with from these batches."""
        if self._normalises:
            counts = [len(next(iter(batch.values()))) for batch in batches]
            statistics = self._each("measure", batches, measuring)
            means = together(zip(counts, statistics, strict=True))
            self._ask("feed", held(self.network.graph, means))

    def evaluate(self, batches: Sequence[Batch]) -> list[BatchResult]:
        """Losses and right answers, nothing learned."""
        form = evaluating if self._normalises else None
        return [BatchResult(*passed) for passed in self._each("evaluate", batches, form)]

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

    def _each(self, verb: str, batches: Iterable[Batch], form: Form | None = None) -> list[Any]:
        answers: list[Any] = []
        for _, group in groupby(batches, key=_shapes):
            alike = list(group)
            ordered = [[batch[name] for name in self.network.inputs] for batch in alike]
            answers += self._ask(verb, self._place(alike[0], form), ordered)
        return answers

    def _place(self, batch: Batch, form: Form | None = None) -> int:
        """The program for batches of this shape, in this form."""
        shapes = _shapes(batch)
        key = form, shapes
        if self._number is None and form is not None:
            self._place(batch)  # the first program is the one that is trained
        if key not in self._places:
            graph = specialised(self.network.graph, dict(shapes))
            graph = graph if form is None else form(graph)
            described = describe(graph, self.network.graph, as_model=False)
            if self._number is None:
                setting = {
                    **ENDS,
                    "learned": learned(graph),
                    "kind": self.kind,
                    "rule": self.optimizer.name,
                    "hyperparameters": vars(self.optimizer),
                }
                self._number = self.client.ask("training", "begin", described, setting)
                self._places[key] = 0
            else:
                self._places[key] = self._ask("plan", described)
        return self._places[key]

    def _ask(self, verb: str, *arguments: Any) -> Any:
        with self.client.answering_within(ANSWER_SECONDS):
            return self.client.ask("training", verb, self._number, *arguments)


def _shapes(batch: Batch) -> tuple[Any, ...]:
    return tuple(sorted((name, x.shape) for name, x in batch.items()))


def normalising(graph: Graph) -> list[Node]:
    """The nodes that normalise by their batch, and whose statistics parameters hold."""
    return [
        node
        for node in graph.nodes
        if isinstance(node.op, BatchNormalization)
        and node.op.training_mode
        and graph.parameters.keys() >= {*node.inputs[STATISTICS]}
    ]


def learned(graph: Graph) -> tuple[str, ...]:
    """The parameters that gradients reach: all but those that hold statistics."""
    norms = [node for node in graph.nodes if isinstance(node.op, BatchNormalization)]
    held = {name for node in norms for name in node.inputs[STATISTICS]}
    return tuple(name for name in graph.parameters if name not in held)


def evaluating(graph: Graph) -> Graph:
    """The graph that normalises by the statistics that it holds."""
    for node in normalising(graph):
        op = node.op.with_(training_mode=0)  # type: ignore[union-attr]
        graph = graph.with_node(Node(node.name, op, node.inputs, node.outputs[:1]))
    return graph


def measuring(graph: Graph) -> Graph:
    """The graph with each batch's statistics among its outputs: mean and variance of each node.

    Each has one axis of channels, and all others of size 1. The shapes of inputs must be known.
    """
    shapes, _ = shapes_and_types(graph)
    nodes, constants, outputs = [*graph.nodes], dict(graph.constants), [*graph.outputs]
    for node in normalising(graph):
        parts = ("axes", "apart", "square", "mean", "variance")
        axes, apart, square, mean, variance = (f"{node.name}/statistics/{part}" for part in parts)
        x = node.inputs[0]
        constants[axes] = np.array([k for k in range(len(shapes[x])) if k != 1], np.int64)
        nodes += [
            Node(mean, ReduceMean(), (x, axes), (mean,)),
            Node(apart, Sub(), (x, mean), (apart,)),
            Node(square, Mul(), (apart, apart), (square,)),
            Node(variance, ReduceMean(), (square, axes), (variance,)),
        ]
        outputs += [mean, variance]
    return graph.with_(nodes=tuple(nodes), constants=constants, outputs=tuple(outputs))


def together(batches: Iterable[tuple[int, Sequence[Array]]]) -> list[Array]:
    """Mean and variance of each node in turn, over batches of so many samples, by channel.

    The mean of the batches' means m, and the mean of their variances and m^2, less its square.
    """
    samples, sums = 0, None
    for count, statistics in batches:
        means, variances = statistics[::2], statistics[1::2]
        exact = [np.asarray(m, np.float64).ravel() for m in means]
        squares = [np.ravel(v) + m * m for v, m in zip(variances, exact, strict=True)]
        moments = [count * np.stack(two) for two in zip(exact, squares, strict=True)]
        sums = moments if sums is None else [a + b for a, b in zip(sums, moments, strict=True)]
        samples += count
    both = [total / samples for total in sums or ()]
    return [x for mean, square in both for x in (mean, np.maximum(square - mean * mean, 0))]


def held(graph: Graph, statistics: Sequence[Array]) -> Mapping[str, Array]:
    """The parameters that hold `statistics`, as `together` made them."""
    names = [name for node in normalising(graph) for name in node.inputs[STATISTICS]]
    return {
        name: x.astype(graph.parameters[name].dtype)
        for name, x in zip(names, statistics, strict=True)
    }
