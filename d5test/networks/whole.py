"""A network judged as a whole: outputs and gradients against the spread of noisy references.

`expected` runs the reference once as it is and eight times with noise; `expectation` does so once
for all backends. At a kink (a Relu at zero, two equal maxima) an error of one rounding changes a
gradient by more than any spread: inputs that come near one are passed over, and others drawn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator, is_float
from d5test.networks.graph import Graph, Node
from d5test.networks.network import Network
from d5test.networks.specialise import runnable, shapes_and_types, specialised
from d5test.networks.zoo.built import Built
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic, classes
from d5test.numerics.bounds import Bound
from d5test.numerics.ensemble import MEMBERS, Spread, noise, norm_ratio
from d5test.numerics.judgement import Judgement, judge, telling
from d5test.numerics.perturbed import rounded

Arrays = Mapping[str, Array]
Lift = Callable[[Array], Any]
AFFORDABLE = 3 * 10**9
"""Multiplications of a model whose reference runs in seconds, nine times, in NumPy."""
DRAWS = 40
"""How often inputs are drawn until none comes near a kink."""
REACH = 4.0
"""Deviations that an error may take an element towards a kink; a normal one does once in 30,000
times, and of a thousand elements hardly one is that near."""


class Pass:
    """One pass over a graph by its references. `values` has every tensor that was met, by name.

    It runs on NumPy arrays of any kind: plain float64, or arrays that carry noise or round; `lift`
    turns the network's own arrays into them.
    """

    def __init__(self, graph: Graph, inputs: Mapping[str, Array], lift: Lift) -> None:
        self._nodes = runnable(graph)
        self._lift = lift
        arrays = {**graph.constants, **graph.parameters, **inputs}
        self.values: dict[str, Any] = {name: self._lifted(x) for name, x in arrays.items()}
        self._outputs: dict[str, tuple[Any, ...]] = {}

    def forward(self) -> None:
        """Run the nodes."""
        for node, op in self._nodes:
            with np.errstate(all="ignore"):
                outputs = op(*self._inputs(node))
            self._outputs[node.name] = outputs
            named = zip(node.outputs, outputs, strict=False)
            self.values |= {name: y for name, y in named if name}

    def backward(self, loss: str) -> dict[str, Any]:
        """The gradients of all tensors that a loss depends on; of all their readers the sum."""
        grads = {loss: self._lifted(np.ones(np.shape(self.values[loss])))}
        for node, op in reversed(self._nodes):
            dys = tuple(grads.get(name) if name else None for name in node.outputs)
            if not op.differentiable or all(dy is None for dy in dys):
                continue
            with np.errstate(all="ignore"):
                dxs = op.vjp(dys, self._inputs(node), self._outputs[node.name])
            for name, dx in zip(node.inputs, dxs, strict=False):
                if name and dx is not None:
                    grads[name] = grads[name] + dx if name in grads else dx
        return grads

    def _inputs(self, node: Node) -> tuple[Any, ...]:
        return tuple(self.values[name] if name else None for name in node.inputs)

    def _lifted(self, x: Array) -> Any:
        return self._lift(double(x)) if x.dtype.kind in "fV" else x


def double(x: Array) -> Array:
    """Floating-point numbers in float64: the array itself if it is, or holds other things."""
    return x.astype(np.float64, copy=False) if x.dtype.kind in "fV" else x


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
    bounds: tuple[Bound, ...]
    telling: bool
    void: bool

    def judged(self, results: Mapping[str, Array | None]) -> Judgement:
        """The judgement of results by name; by element and by norm, whichever is worse.

        A gradient that the framework does not have is zero. `output` of the judgement counts in
        `names`.
        """
        arrays = [
            np.zeros(bound.value.shape) if results[name] is None else results[name]
            for name, bound in zip(self.names, self.bounds, strict=True)
        ]
        judgement = judge(self.bounds, arrays)
        ratio = max(judgement.ratio, norm_ratio(self.bounds, arrays))
        return replace(judgement, ratio=ratio, telling=self.telling, void=self.void)

    def misshapen(self, results: Mapping[str, Any]) -> str:
        """Which result is missing or has another shape or kind of dtype; empty if none."""
        for name, bound in zip(self.names, self.bounds, strict=True):
            if name not in results:
                return f"{name} is missing"
            got = results[name]
            if got is None:
                continue
            if got.shape != bound.value.shape:
                return f"{name} has the shape {got.shape}, not {bound.value.shape}"
            dtype = bound.storage.name if bound.storage is not None else got.dtype.name
            if got.dtype.name != dtype or (bound.storage is None and got.dtype.kind not in "iub"):
                return f"{name} is {got.dtype.name}, not {dtype}"
        return ""

    def in_words(self, judgement: Judgement) -> dict[str, str]:
        """Worst element, value, expectation and bar of a judgement."""
        where = f"[{', '.join(map(str, judgement.position))}]"
        return {
            "inputs": ", ".join(f"{n} {x.dtype.name} {x.shape}" for n, x in self.inputs.items()),
            "worst": f"element {where} of {self.names[judgement.output]}",
            "got": repr(judgement.got),
            "want": f"{judgement.want!r}, give or take {judgement.bar:.3g}",
            "error": f"{judgement.ratio:.4g} times what the ensemble allows, by element or norm",
            "judged": f"{judgement.share:.0%} of the elements",
        }


Expectations = dict[tuple[str, str | None], Expectation]
"""By network and loss."""


def expectation(
    known: Expectations, built: Built, network: Network, loss: str | None
) -> Expectation:
    """What the reference expects of a network."""
    key = built.name, loss
    if key not in known:
        graph = specialised(network.graph, built.shapes)
        known[key] = expected(graph, built.inputs, loss, arithmetic(network))
    return known[key]


def arithmetic(network: Network) -> Arithmetic:
    """The arithmetic of a network's first floating-point dtype, flushing to zero or not."""
    dtypes = (value.dtype for value in network.inputs.values() if is_float(value.dtype))
    return classes(next(dtypes, "float32"), flushes=True)[0]


def multiplications(graph: Graph) -> int:
    """Of a graph for given shapes; operators that do not count them count as none."""
    shapes, _ = shapes_and_types(graph)
    total = 0
    for node in graph.nodes:
        inputs = [shapes.get(name) for name in node.inputs]
        if isinstance(node.op, Operator) and None not in inputs:
            total += node.op.multiplications(*inputs) or 0
    return total


def require_affordable(network: Network, inputs: Arrays, name: str) -> None:
    """Raise `Unsupported` if the reference of a network on these inputs would take minutes."""
    graph = specialised(network.graph, {key: x.shape for key, x in inputs.items()})
    count = multiplications(graph)
    if count > AFFORDABLE:
        raise Unsupported(
            f"{count / 1e9:.1f}e9 multiplications, nine times in NumPy: --network={name} runs it"
        )


def expected(
    graph: Graph, draw: Callable[[int], Arrays], loss: str | None, arithmetic: Arithmetic
) -> Expectation:
    """What is expected on the first inputs that `draw(seed)` gives away from all kinks.

    With a loss: its gradients by the parameters. Raises `KinkInDoubt` if there are none in
    `DRAWS` draws, and `Unsupported` where a node rounds to another dtype.
    """
    for node in graph.nodes:
        if isinstance(node.op, Operator) and node.op.typed:
            raise Unsupported(f"{node.name} converts dtypes: it is judged by itself alone")
    for seed in range(DRAWS):
        try:
            return _expected(graph, draw(seed), loss, arithmetic)
        except KinkInDoubt as doubt:
            last = doubt
    raise last


def _expected(
    graph: Graph, inputs: Arrays, loss: str | None, arithmetic: Arithmetic
) -> Expectation:
    parameters = () if loss is None else tuple(graph.parameters)
    wide = graph.with_arrays({n: double(x) for n, x in graph.parameters.items()})
    plain = Pass(wide, inputs, lambda x: x)
    plain.forward()
    kinks = [node.inputs[0] for node in graph.nodes if loss is not None and node.kind in GAPS]
    spreads = {name: Spread(plain.values[name]) for name in (*graph.outputs, *kinks)}
    members: list[Pass] = []
    for seed in range(MEMBERS):
        member = Pass(wide, inputs, noise(arithmetic, seed))
        member.forward()
        for name, spread in spreads.items():
            spread.add(member.values[name])
        if loss is not None:
            members.append(member)
    if loss is not None:
        _away_from_kinks(graph, spreads, plain.values)
        grads = plain.backward(loss)
        slopes = {name: Spread(grads.get(name, np.zeros(graph.parameters[name].shape)))
                  for name in parameters}  # fmt: skip
        while members:
            grads = members.pop().backward(loss)
            for name, spread in slopes.items():
                spread.add(grads.get(name, 0.0))
        spreads |= {f"gradient of {name}": spread for name, spread in slopes.items()}
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
    lower = Pass(graph, inputs, lambda x: rounded(x, bits))
    lower.forward()
    results = dict(lower.values)
    if loss is not None:
        results |= {f"gradient of {name}": dx for name, dx in lower.backward(loss).items()}
    return tuple(getattr(x, "value", x) for x in map(results.get, names))


def _away_from_kinks(
    graph: Graph, spreads: Mapping[str, Spread], values: Mapping[str, Any]
) -> None:
    """Raise `KinkInDoubt` if an element may lie on either side of a kink."""
    for node in graph.nodes:
        if node.kind not in GAPS or not isinstance(node.op, Operator):
            continue
        reach = REACH * spreads[node.inputs[0]].deviation
        gap, reach = GAPS[node.kind](node.op, reach, *[values[name] for name in node.reads])
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
    "Shrink": _to_bend(lambda op: (-op.lambd, op.lambd)),
    "ThresholdedRelu": _to_bend(lambda op: (op.alpha,)),
}
"""Operators whose derivative jumps: the distance of each element from that, and the reach."""
