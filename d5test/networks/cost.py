"""What a network costs: the multiplications of one forward pass, by the operators' own count."""

from __future__ import annotations

from d5test.case import Operator
from d5test.networks.graph import Graph
from d5test.networks.specialise import known_shapes

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
