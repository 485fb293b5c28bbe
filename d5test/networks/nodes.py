"""A network judged node by node, with bars, on what the backend itself gave each node.

An error before a node is no fault of that node, and bars do not grow from one to the next: the
node that computes wrongly is named, and its operator alone is what a reproducer needs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Arrays, Case, Operator, Tensor, is_float
from d5test.checks.check import without_reference
from d5test.checks.inquiry import Inquiry
from d5test.networks.executor import Executor, Loss, NodeResult, Piece
from d5test.networks.flow import Flow, has_flow
from d5test.networks.graph import BrokenGraph, Graph, Node
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault

PASSES = 3
"""Passes through the body of a loop in which its nodes are judged; the later ones only run."""


@dataclass(frozen=True, repr=False, eq=False)
class NodeCase(Case):
    """The operator of a node on the very arrays that reached it."""

    reached: Arrays = field(kw_only=True)

    def arrays(self) -> Arrays:
        """The arrays, as they are."""
        return self.reached

    def __repr__(self) -> str:
        return f"{super().__repr__()}, with the values that reached the node"


@dataclass(frozen=True)
class NodesJudged:
    """What was found node by node.

    judged   how many results: the outputs of a node count one, its gradients one
    worst    the largest ratio of error and bar among the right ones, and its node
    faults   by the name of the guilty node
    reasons  why nodes were not judged, by their names
    """

    judged: int = 0
    worst: Judgement = field(default_factory=Judgement)
    worst_node: str = ""
    faults: Mapping[str, Fault] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


def judged_nodes(
    executor: Executor, inputs: Mapping[str, Array], loss: Loss | None
) -> NodesJudged:
    """Every node's outputs, and with a loss its gradients. Raises `Unsupported`.

    A compiled mode has no nodes: what it computes between the network's ends is its own affair.
    Of control flow the nodes of its bodies are judged, without gradients.
    """
    client = executor.client
    if client.about.mode != "eager":
        raise Unsupported(f"{client.about.name} compiles a network whole: no nodes to be judged")
    graph = executor.graph(inputs)
    if has_flow(graph) and not client.about.reads_models:
        return _of_pieces(executor, graph, inputs)
    values = {**graph.constants, **graph.parameters, **inputs}
    wanted = {node.name: _pulled(client.about, node, graph) for node in graph.nodes}
    judged, worst, worst_node = 0, Judgement(), ""
    faults: dict[str, Fault] = {}
    reasons: dict[str, str] = {}
    for passed in executor.nodes(inputs, loss, wanted):
        node = graph.node(passed.name)
        values |= dict(zip(node.outputs, passed.outputs, strict=False))
        if not isinstance(node.op, Operator):
            reasons[node.name] = node.op.reason
            continue
        if why := without_reference(type(node.op)):
            reasons[node.name] = str(why)
            continue
        if client.about.reads_models and (dtype := _hidden(node, graph, values)):
            kept = "between its nodes a runtime may keep more digits than it shows"
            reasons[node.name] = f"{dtype}: {kept}"
            continue
        try:
            for judgement in _judged(client, node, passed, values, wanted[node.name]):
                judged += 1
                if judgement.ratio >= worst.ratio:
                    worst, worst_node = judgement, node.name
        except Fault as fault:
            fault.details["node"] = f"{node.name} of {executor.network.name}"
            faults[node.name] = fault
        except Unsupported as unsupported:
            reasons[node.name] = str(unsupported)
    return NodesJudged(judged, worst, worst_node, faults, reasons)


def _of_pieces(executor: Executor, graph: Graph, inputs: Mapping[str, Array]) -> NodesJudged:
    """The nodes between and inside of control flow, each in the first passes through it."""
    passes: list[NodesJudged] = []
    pieces: list[Piece] = []

    def ready(nodes: Graph) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
        piece, left = Piece(executor.client, nodes), iter(range(PASSES))
        pieces.append(piece)

        def run(given: Mapping[str, Array]) -> Mapping[str, Array]:
            there = piece.executor(given)
            if next(left, None) is not None:
                passes.append(judged_nodes(there, given, None))
            return there.inference(given)

        return run

    try:
        Flow(graph, ready)(inputs)
    except BrokenGraph:  # what a wrong node made, it says, may not fit the graph
        if not any(one.faults for one in passes):
            raise
    finally:
        for piece in pieces:
            piece.unload()
    worst = max(passes, key=lambda one: one.worst.ratio, default=NodesJudged())
    return NodesJudged(
        sum(one.judged for one in passes),
        worst.worst,
        worst.worst_node,
        {name: fault for one in passes for name, fault in one.faults.items()},
        {name: why for one in passes for name, why in one.reasons.items()},
    )


def _judged(
    client: Any,
    node: Node,
    passed: NodeResult,
    values: Mapping[str, Array],
    wanted: tuple[int, ...],
) -> Iterator[Judgement]:
    """The judgements of a node's outputs, and of its gradients if there are any."""
    arrays = tuple(values[name] if name else None for name in node.inputs)
    tensors = tuple(
        None if x is None else Tensor(x.shape, x.dtype.name, same_as=_same_as(node.inputs, i))
        for i, x in enumerate(arrays)
    )
    assert isinstance(node.op, Operator)
    inquiry = Inquiry("nodes", client, NodeCase(node.op, tensors, reached=arrays))
    outputs = tuple(passed.outputs)
    feed = inquiry.feed()
    judgement, _ = inquiry.held(
        lambda arithmetic: inquiry.forward_bounds(arithmetic)[: len(outputs)],
        outputs, (feed,), kind="value", what="a node of a network is wrong",
    )  # fmt: skip
    yield judgement
    if passed.gradients is None or passed.upstream is None:
        return
    grads = tuple(passed.upstream)
    feed = inquiry.feed(grads=grads)
    gradients = dict(zip(wanted, passed.gradients, strict=True))
    results = tuple(
        np.zeros_like(arrays[i]) if gradients.get(i) is None else gradients[i]
        for i in inquiry.wanted
    )
    judgement, _ = inquiry.held(
        lambda arithmetic: inquiry.gradient_bounds(arithmetic, grads),
        results, (feed,), kind="gradient", what="the gradient of a node of a network is wrong",
    )  # fmt: skip
    yield judgement


def _hidden(node: Node, graph: Graph, values: Mapping[str, Array]) -> str:
    """The 16-bit dtype of what a node is given by others, if it is given such."""
    dtypes = (values[name].dtype.name for name in node.reads if name in graph.makers)
    return next((dtype for dtype in dtypes if dtype in ("float16", "bfloat16")), "")


def _same_as(names: tuple[str, ...], position: int) -> int | None:
    """The earlier position at which the same tensor stands."""
    first = names.index(names[position])
    return None if first == position else first


def _pulled(about: Any, node: Node, graph: Graph) -> tuple[int, ...]:
    """The positions of a node's inputs through which a gradient is pulled."""
    row, op = about.rows.get(node.kind), node.op
    if row is None or row.gradient or not isinstance(op, Operator) or not op.differentiable:
        return ()
    integers = {name for name, value in graph.inputs.items() if not is_float(value.dtype)}
    return tuple(
        i
        for i, name in enumerate(node.inputs)
        if name and i not in row.stopped and _same_as(node.inputs, i) is None
        and name not in graph.constants and name not in integers
    )  # fmt: skip
