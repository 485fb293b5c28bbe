"""A node of control flow or of sequences that is being run, and what it may still cost.

A file cannot make a pass endless: the bodies of all its loops together run at most `ITERATIONS`
times, and what one loop holds has at most `BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.networks.graph import BrokenGraph, Graph, Node, Unmodelled

ITERATIONS = 10_000
BYTES = 1 << 30
Body = Callable[..., list[Any]]
"""Runs a body: from its inputs in order to its outputs."""
Rule = Callable[..., list[Any]]
"""What an operator does: from a `Call` and its inputs to its outputs."""


class Budget:
    """How often bodies may still run in this pass."""

    def __init__(self) -> None:
        self.left = ITERATIONS

    def spend(self, node: Node, held: int) -> None:
        """One iteration more, of a loop that holds so many bytes. Raises `Unsupported`."""
        self.left -= 1
        if self.left < 0:
            raise Unsupported(f"node {node.name!r}: more than {ITERATIONS} iterations")
        if held > BYTES:
            raise Unsupported(f"node {node.name!r}: a loop that holds more than {BYTES} bytes")


@dataclass(frozen=True)
class Call:
    """A node that is being run: what a rule knows beside its inputs."""

    node: Node
    bodies: Mapping[str, Body]
    budget: Budget

    @property
    def body(self) -> Graph:
        """The body of a loop."""
        return self.op.bodies["body"]

    @property
    def op(self) -> Unmodelled:
        """Its operator, which has no reference."""
        assert isinstance(self.node.op, Unmodelled)
        return self.node.op

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        return self.op.attributes.get(name, default)

    def require(self, fine: bool, reason: str) -> None:
        """Raise `BrokenGraph` where something is not as ONNX has it."""
        if not fine:
            raise BrokenGraph(reason, self.node.name)

    def number(self, x: Any) -> int:
        """A tensor of one whole number, or boolean."""
        one = isinstance(x, np.ndarray | np.generic) and x.size == 1 and x.dtype.kind in "biu"
        self.require(one, "needs a tensor of one element")
        return int(x.item())

    def sequence(self, x: Any) -> list[Any]:
        """A sequence, which is a list."""
        self.require(isinstance(x, list), "needs a sequence")
        found: list[Any] = x
        return found


def held(values: Iterable[Any]) -> int:
    """The bytes of arrays and of lists of arrays."""
    return sum(held(x) if isinstance(x, list) else getattr(x, "nbytes", 0) for x in values)
