"""A network as a value: nodes, and the tensors that they read and make, by name.

Every tensor has one origin: an input, a parameter, a constant, or one node's output. Nothing here
changes; an edit is a new graph.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from d5test.case import Array, Operator, is_float

OPSET = 25
"""The version of ONNX's operator set that graphs of older ones are brought to: runtimes know it.
Those of newer ones stay in theirs."""


class BrokenGraph(ValueError):
    """A graph that cannot run. `node` is the name of the node that breaks it, if one does."""

    def __init__(self, reason: str, node: str = "") -> None:
        super().__init__(f"node {node!r}: {reason}" if node else reason)
        self.reason = reason
        self.node = node


@dataclass(frozen=True)
class Value:
    """What an input of a network is: a dtype's name, and a shape whose free sides are names.

    `within` says what holds such tensors, from the outside in: `("optional", "sequence")` is a
    sequence of them that may be absent. A tensor itself is in nothing.
    """

    dtype: str
    shape: tuple[int | str, ...]
    within: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unmodelled:
    """A node's operator that has no reference: `proto` is its serialised NodeProto.

    It can be kept, saved and handed to a runtime; it cannot be judged, for this `reason`.
    `bodies` are the graphs among its attributes. What they read of the graphs around them the
    node reads; `attributes` are the others, and `version` that of the operator set.
    """

    name: str
    proto: bytes
    reason: str
    domain: str = ""
    version: int = OPSET
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False)
    bodies: Mapping[str, Graph] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Node:
    """An operator in its place. `""` among the inputs or outputs is an optional one left out."""

    name: str
    op: Operator | Unmodelled
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def kind(self) -> str:
        """ONNX's name of the operator."""
        return self.op.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that it reads, without those left out; its bodies read some, too."""
        return (*filter(None, self.inputs), *self.captured)

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """The tensors of the graphs around them that its bodies read."""
        bodies = self.op.bodies.values() if isinstance(self.op, Unmodelled) else ()
        return tuple(dict.fromkeys(name for body in bodies for name in body.captured))

    @property
    def makes(self) -> tuple[str, ...]:
        """The tensors that it makes, without those left out."""
        return tuple(filter(None, self.outputs))


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run.

    inputs      what is fed, with dtype and shape
    outputs     the tensors that are the network's results
    parameters  floating-point arrays that are learned
    constants   all other arrays: shapes, axes, indices, masks
    declared    what a file says that outputs are; of a body, or where ONNX cannot tell
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: Mapping[str, Value]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Array] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=lambda: {"": OPSET})
    declared: Mapping[str, Value] = field(default_factory=dict)

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes each tensor which a node makes."""
        return {tensor: node for node in self.nodes for tensor in node.makes}

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """The tensors that it reads, being a body, and that are no body's own."""
        read = [name for node in self.nodes for name in node.reads]
        own = {*self.makers, *self.sources}
        return tuple(dict.fromkeys(n for n in (*read, *self.outputs) if n not in own))

    @property
    def sources(self) -> Iterator[str]:
        """The tensors that no node makes."""
        yield from self.inputs
        yield from self.parameters
        yield from self.constants

    def node(self, name: str) -> Node:
        """The node with this name. Raises `BrokenGraph`."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise BrokenGraph(f"{self.name} has no such node", name)

    def with_(self, **fields: Any) -> Self:
        """The same graph with other fields."""
        return replace(self, **fields)

    def with_node(self, node: Node) -> Self:
        """The same graph with the node of that name replaced."""
        return self.with_(nodes=tuple(node if n.name == node.name else n for n in self.nodes))

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        """The same graph with more parameters, which are floating-point, and constants."""
        parameters, constants = dict(self.parameters), dict(self.constants)
        for name, x in arrays.items():
            (parameters if is_float(x.dtype.name) else constants)[name] = x
        return self.with_(parameters=parameters, constants=constants)

    def without_arrays(self, names: Container[str]) -> Self:
        """The same graph without these parameters and constants."""
        parameters = {name: x for name, x in self.parameters.items() if name not in names}
        constants = {name: x for name, x in self.constants.items() if name not in names}
        return self.with_(parameters=parameters, constants=constants)

    @property
    def unmodelled(self) -> dict[str, str]:
        """Operators without a reference, and why."""
        return {n.kind: n.op.reason for n in self.nodes if isinstance(n.op, Unmodelled)}
