"""What batch normalisation is tested with: statistics of training data, not of the test's batch.

In training each node normalises by the mean and variance of its batch. A test must not depend on
which samples it is done together with: there, mean and variance are those of samples of the
training split (Wu and Johnson, arXiv 2105.07576, section 3.3, PreciseBN). They are measured before
each test and follow from parameters and samples alone: no framework's way to keep running averages
is in them, and they are the same for every optimizer and any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from d5test.case import Array
from d5test.networks.graph import Graph, Node
from d5test.networks.specialise import known_shapes
from d5test.reference.operators.arithmetic import Mul, Sub
from d5test.reference.operators.normalisation import BatchNormalization
from d5test.reference.operators.reductions import ReduceMean


class Pair(NamedTuple):
    """The mean and the variance of a node: names of parameters, or of tensors."""

    mean: str
    variance: str


def normalising(graph: Graph) -> list[tuple[Node, Pair]]:
    """The nodes that normalise by their batch, and the parameters that hold their statistics."""
    return [
        (node, Pair(*node.inputs[3:5]))
        for node in graph.nodes
        if isinstance(node.op, BatchNormalization)
        and node.op.training_mode
        and set(node.inputs[3:5]) <= graph.parameters.keys()
    ]


def learned(graph: Graph) -> tuple[str, ...]:
    """The parameters that gradients reach: all but those that hold statistics."""
    held = {
        name
        for node in graph.nodes
        if isinstance(node.op, BatchNormalization)
        for name in node.inputs[3:5]
    }
    return tuple(name for name in graph.parameters if name not in held)


def evaluating(graph: Graph) -> Graph:
    """The graph that normalises by the statistics that it holds."""
    for node, _ in normalising(graph):
        op = node.op.with_(training_mode=0)  # type: ignore[union-attr]
        graph = graph.with_node(Node(node.name, op, node.inputs, node.outputs[:1]))
    return graph


def measuring(graph: Graph) -> tuple[Graph, list[Pair]]:
    """The graph with each batch's statistics among its outputs, and their names.

    Each has one axis of channels, and all others of size 1. The shapes of inputs must be known.
    """
    shapes, pairs = known_shapes(graph), []
    nodes, constants = list(graph.nodes), dict(graph.constants)
    for node, _ in normalising(graph):
        x, about = node.inputs[0], f"{node.name}/statistics"
        axes, apart, square = (f"{about}/{part}" for part in ("axes", "apart", "square"))
        pair = Pair(f"{about}/mean", f"{about}/variance")
        constants[axes] = np.array([k for k in range(len(shapes[x])) if k != 1], np.int64)
        nodes += [
            Node(pair.mean, ReduceMean(), (x, axes), (pair.mean,)),
            Node(apart, Sub(), (x, pair.mean), (apart,)),
            Node(square, Mul(), (apart, apart), (square,)),
            Node(pair.variance, ReduceMean(), (square, axes), (pair.variance,)),
        ]
        pairs.append(pair)
    outputs = (*graph.outputs, *(name for pair in pairs for name in pair))
    return graph.with_(nodes=tuple(nodes), constants=constants, outputs=outputs), pairs


def together(batches: Iterable[tuple[int, Sequence[Array]]]) -> list[Array]:
    """Mean and variance of each node in turn, over batches of so many samples, by channel.

    The mean of the batches' means m, and the mean of their variances and m^2, less its square.
    """
    samples, sums = 0, None
    for count, statistics in batches:
        means, variances = statistics[::2], statistics[1::2]
        exact = [np.asarray(m, np.float64).ravel() for m in means]
        squares = [np.ravel(v) + m * m for v, m in zip(variances, exact, strict=True)]
        found = [count * np.stack(two) for two in zip(exact, squares, strict=True)]
        sums = found if sums is None else [a + b for a, b in zip(sums, found, strict=True)]
        samples += count
    both = [total / samples for total in sums or ()]
    return [x for mean, square in both for x in (mean, np.maximum(square - mean * mean, 0))]


def held(graph: Graph, statistics: Sequence[Array]) -> Mapping[str, Array]:
    """The parameters that hold `statistics`, as `together` made them."""
    names = [name for _, pair in normalising(graph) for name in pair]
    return {
        name: x.astype(graph.parameters[name].dtype)
        for name, x in zip(names, statistics, strict=True)
    }
