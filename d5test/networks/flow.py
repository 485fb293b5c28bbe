"""A graph with control flow or sequences, run in parts.

    flow = Flow(graph, run)
    outputs = flow(inputs)

Nodes in a row are made ready by `run`, on a backend say. Between them are the operators in
`RULES`, which decide what runs next, or put arrays into lists. A body reads the tensors of the
graphs around it. Each pass has a `Budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from d5test.case import Array
from d5test.networks.call import Budget, Call, Rule
from d5test.networks.control import CONTROL
from d5test.networks.graph import BrokenGraph, Graph, Node, Unmodelled, Value
from d5test.networks.sequences import SEQUENCES

BESIDE = "d5test itself runs control flow and sequences, for results alone"
"""Why such a node has no operator and no gradient."""
RULES: Mapping[str, Rule] = {**CONTROL, **SEQUENCES, "Identity": lambda call, x: [x]}
"""By operator. An Identity may be one of a sequence."""

Values = Mapping[str, Any]
"""Arrays, lists of arrays and None, by name."""
Run = Callable[[Graph], Callable[[Mapping[str, Array]], Mapping[str, Array]]]
"""Makes a graph of operators ready; what is called then takes its inputs and gives its outputs."""


def is_flow(kind: str, domain: str = "") -> bool:
    """Whether this is an operator that runs between others."""
    return not domain and kind in RULES


def has_flow(graph: Graph) -> bool:
    """Whether a graph has to be run in parts."""
    held = any(value.within for value in graph.inputs.values())
    return held or any(isinstance(n.op, Unmodelled) and is_flow(n.kind, n.op.domain)
                       for n in graph.nodes)  # fmt: skip


class Flow:
    """A graph, or a body, run in parts. `known` are the arrays of the graphs around a body."""

    def __init__(self, graph: Graph, run: Run, known: Mapping[str, Array] | None = None) -> None:
        own = {*graph.inputs, *graph.makers}
        around = {name: x for name, x in (known or {}).items() if name not in own}
        self.graph = graph
        self._known = {**around, **graph.constants, **graph.parameters}
        self._steps: list[tuple[Node | Graph, Any]] = []
        parts = list(_parts(graph))
        needed = {*graph.outputs}
        for part in reversed(parts):
            if isinstance(part, Node):
                bodies = part.op.bodies if isinstance(part.op, Unmodelled) else {}
                flows = {name: Flow(body, run, self._known) for name, body in bodies.items()}
                self._steps.append((part, flows))
                needed.update(part.reads)
            else:
                piece = self._piece(part, needed)
                self._steps.append((piece, run(piece)))
                needed.update(piece.inputs)
        self._steps.reverse()

    def __call__(
        self, inputs: Values, around: Values | None = None, budget: Budget | None = None
    ) -> list[Any]:
        """The outputs in order. `around` has what is read of the graphs around."""
        budget = budget or Budget()
        values = {**(around or {}), **self._known, **inputs, "": None}
        for step, run in self._steps:
            if isinstance(step, Graph):
                values |= run(_tensors(step, values))
                continue
            bodies = {name: partial(body.positional, values, budget, step)
                      for name, body in run.items()}  # fmt: skip
            call, given = Call(step, bodies, budget), [values[name] for name in step.inputs]
            results = RULES[step.kind](call, *given)
            call.require(len(results) >= len(step.outputs), f"makes {len(results)} outputs")
            values |= {name: y for name, y in zip(step.outputs, results, strict=False) if name}
        return [values[name] for name in self.graph.outputs]

    def positional(self, around: Values, budget: Budget, node: Node, *inputs: Any) -> list[Any]:
        """The outputs of a body that is given its inputs in order."""
        names = list(self.graph.inputs)
        if len(names) != len(inputs):
            reason = f"its body takes {len(names)} inputs, and is given {len(inputs)}"
            raise BrokenGraph(reason, node.name)
        return self(dict(zip(names, inputs, strict=True)), around, budget)

    def _piece(self, nodes: tuple[Node, ...], needed: set[str]) -> Graph:
        """These nodes as a graph, with those outputs that are needed behind them."""
        made = [tensor for node in nodes for tensor in node.makes]
        read = dict.fromkeys(t for node in nodes for t in node.reads if t not in made)
        arrays = {name: self._known[name] for name in read if name in self._known}
        piece = self.graph.with_(
            nodes=nodes, parameters={}, constants={},
            inputs={name: Value("", ()) for name in read if name not in arrays},
            outputs=tuple(tensor for tensor in made if tensor in needed),
        )  # fmt: skip
        return piece.with_arrays(arrays)


def _parts(graph: Graph) -> Iterator[Node | tuple[Node, ...]]:
    """What runs between, and nodes in a row."""
    row: list[Node] = []
    for node in graph.nodes:
        if not is_flow(node.kind, node.op.domain):
            row.append(node)
            continue
        if row:
            yield tuple(row)
        yield node
        row = []
    if row:
        yield tuple(row)


def _tensors(graph: Graph, values: Values) -> dict[str, Array]:
    """The inputs of nodes that take tensors. Raises `BrokenGraph`."""
    tensors = {}
    for name in graph.inputs:
        if values[name] is None or isinstance(values[name], list):
            reader = next(node for node in graph.nodes if name in node.reads)
            raise BrokenGraph(f"reads {name!r}, which is no tensor", reader.name)
        tensors[name] = values[name]
    return tensors
