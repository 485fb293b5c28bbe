"""A network judged as a whole: outputs and gradients against the spread of noisy references.

`expected` runs the reference once as it is and eight times with noise. At a kink (a Relu at zero,
two equal maxima) an error of one rounding changes a gradient by more than any spread: inputs that
come near one are passed over, and others drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d5test.case import Array, Operator
from d5test.networks.graph import Graph
from d5test.networks.reference import Pass, in_double, upstream_of
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.controls import telling
from d5test.numerics.ensemble import MEMBERS, Spread, noise, norm_ratio
from d5test.numerics.judgement import Judgement, judge
from d5test.numerics.perturbed import Rounded, round_to
from d5test.numerics.tracked import Tracked

Arrays = Mapping[str, Array]
DRAWS = 40
"""How often inputs are drawn until none comes near a kink."""
REACH = 4.0
"""Deviations that an error may take an element towards a kink; a normal one does once in 30,000
times, and of a thousand elements hardly one is that near."""


class KinkInDoubt(Exception):
    """At these inputs a kink is nearer than honest errors reach; the text names the node."""


@dataclass(frozen=True)
class Expectation:
    """What is expected of a network on some inputs.

    names   the outputs, and the parameters whose gradients are expected, in the order of `bounds`
    """

    graph: Graph
    inputs: Arrays
    loss: str | None
    names: tuple[str, ...]
    bounds: Bounds
    telling: bool
    void: bool

    def judged(self, results: Mapping[str, Array | None]) -> Judgement:
        """The judgement of results by name; by element and by norm, whichever is worse.

        A gradient that the framework does not have is zero. `output` of the judgement counts in
        `names`.
        """
        found = [_given(results[name], bound) for name, bound in zip(self.names, self.bounds)]  # noqa: B905
        judgement = judge(self.bounds, found)
        ratio = max(judgement.ratio, norm_ratio(self.bounds, found))
        return replace(judgement, ratio=ratio, telling=self.telling, void=self.void)


def expected(
    graph: Graph,
    draw: Callable[[int], Arrays],
    loss: str | None,
    arithmetic: Arithmetic,
    wanted: Sequence[str] | None = None,
) -> Expectation:
    """What is expected on the first inputs that `draw(seed)` gives away from all kinks.

    With a loss: its gradients by the parameters, or by those wanted. Raises `KinkInDoubt` if
    there are none in `DRAWS` draws.
    """
    for seed in range(DRAWS):
        inputs = draw(seed)
        try:
            return _expected(graph, inputs, loss, arithmetic, wanted)
        except KinkInDoubt as doubt:
            last = doubt
    raise last


def _expected(
    graph: Graph,
    inputs: Arrays,
    loss: str | None,
    arithmetic: Arithmetic,
    wanted: Sequence[str] | None,
) -> Expectation:
    parameters = () if loss is None else tuple(wanted or graph.parameters)
    wide = in_double(graph)
    plain = Pass(wide, inputs, lambda x: x)
    spreads: dict[str, Spread] = {}
    for node in plain.forward():
        kept = {*node.makes} & {*graph.outputs}
        kept |= {*node.inputs[:1]} if loss is not None and node.kind in GAPS else set()
        spreads |= {name: Spread(plain.values[name]) for name in kept}
    members: list[Pass] = []
    for seed in range(MEMBERS):
        member = Pass(wide, inputs, noise(arithmetic, seed))
        for _ in member.forward():
            continue
        for name, spread in spreads.items():
            spread.add(member.values[name])
        if loss is not None:
            members.append(member)
    if loss is not None:
        _away_from_kinks(graph, spreads, plain.values)
        upstream = upstream_of(loss, plain.values)
        grads = plain.backward(upstream)
        found = {name: Spread(grads.get(name, np.zeros(graph.parameters[name].shape)))
                 for name in parameters}  # fmt: skip
        while members:
            grads = members.pop().backward(upstream)
            for name, spread in found.items():
                spread.add(grads.get(name, 0.0))
        spreads |= {f"gradient of {name}": spread for name, spread in found.items()}
    names = (*graph.outputs, *(f"gradient of {name}" for name in parameters))
    bounds = tuple(spreads[name].bound(arithmetic) for name in names)
    tells, void = telling(
        bounds, list(inputs.values()), lambda: _lowered(graph, inputs, loss, names, arithmetic)
    )
    return Expectation(graph, inputs, loss, names, bounds, tells, void)


def _lowered(
    graph: Graph, inputs: Arrays, loss: str | None, names: Iterable[str], arithmetic: Arithmetic
) -> tuple[Array | None, ...]:
    """The same results, computed in the next lower precision."""
    bits = NEXT_LOWER[arithmetic.storage.name]
    lower = Pass(graph, inputs, lambda x: Rounded(round_to(x, bits), precision=bits))
    for _ in lower.forward():
        continue
    results = dict(lower.values)
    if loss is not None:
        found = lower.backward(upstream_of(loss, lower.values))
        results |= {f"gradient of {name}": dx for name, dx in found.items()}
    return tuple(_plain(results.get(name)) for name in names)


def _away_from_kinks(
    graph: Graph, spreads: Mapping[str, Spread], values: Mapping[str, Any]
) -> None:
    """Raise `KinkInDoubt` if an element may lie on either side of a kink."""
    for node in graph.nodes:
        if node.kind not in GAPS or not isinstance(node.op, Operator):
            continue
        reach = REACH * spreads[node.inputs[0]].deviation
        given = [values[name] for name in node.reads]
        gap, reach = GAPS[node.kind](node.op, reach, *given)
        if np.any(gap < reach):
            raise KinkInDoubt(f"node {node.name!r}: {np.sum(gap < reach)} elements are in doubt")


def _to_bend(bends: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Array, Array]]:
    """How far each element is from the nearest bend, and how far an error may take it."""

    def gap(op: Any, reach: Array, x: Array, *others: Array) -> tuple[Array, Array]:
        apart = [np.abs(x - bend) for bend in bends(op, *others)]
        return np.min([np.full(x.shape, np.inf), *apart], axis=0), reach

    return gap


def _to_second(op: Any, reach: Array, x: Array) -> tuple[Array, Array]:
    """How far the largest of each window is from the second largest, and how far errors reach."""
    windows = op.windows(x.shape)
    elements = windows.view(x, fill=-np.inf)
    flat = elements.reshape(*elements.shape[: x.ndim], -1)
    reached = windows.view(reach, fill=0.0).reshape(flat.shape)
    two = np.argpartition(flat, -2, axis=-1)[..., -2:]
    values, errors = (np.take_along_axis(a, two, -1) for a in (flat, reached))
    tied = (values[..., 0] == values[..., 1]) & (values[..., 1] == 0)  # both cut off by a Relu
    gap = np.where(tied, np.inf, values[..., 1] - values[..., 0])
    return gap, errors.sum(-1)


GAPS: Mapping[str, Callable[..., tuple[Array, Array]]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "Abs", "Elu", "Selu"), _to_bend(lambda op: (0,))),
    "Clip": _to_bend(lambda op, *bounds: bounds),
    "HardSigmoid": _to_bend(lambda op: (-op.beta / op.alpha, (1 - op.beta) / op.alpha)),
    "HardSwish": _to_bend(lambda op: (-3, 3)),
    "MaxPool": _to_second,
    "PRelu": _to_bend(lambda op, slope: (0,)),
    "ThresholdedRelu": _to_bend(lambda op: (op.alpha,)),
}
"""Operators whose derivative jumps: the distance of each element from that, and the reach."""


def _given(result: Array | None, bound: Any) -> Any:
    return np.zeros(bound.value.shape) if result is None else result


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Tracked) else x
