"""What a network costs: the multiplications of one forward pass, by the operators' own count."""

from __future__ import annotations

from collections.abc import Mapping

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator
from d5test.networks.graph import Graph
from d5test.networks.network import Network
from d5test.networks.specialise import known_shapes, specialised

AFFORDABLE = 3 * 10**9
"""Multiplications of a model whose reference runs in seconds, nine times, in NumPy."""


def multiplications(graph: Graph) -> int:
    """Of a graph for given shapes; operators that do not count them count as none."""
    shapes = known_shapes(graph)
    total = 0
    for node in graph.nodes:
        given = [shapes.get(name) for name in node.inputs]
        if isinstance(node.op, Operator) and None not in given:
            total += node.op.multiplications(*given) or 0
    return total


def require_affordable(network: Network, inputs: Mapping[str, Array], name: str) -> None:
    """Raise `Unsupported` if the reference of a network on these inputs would take minutes."""
    graph = specialised(network.graph, {key: x.shape for key, x in inputs.items()})
    count = multiplications(graph)
    if count > AFFORDABLE:
        raise Unsupported(
            f"{count / 1e9:.1f}e9 multiplications, nine times in NumPy: --network={name} runs it"
        )
