"""A network judged as a whole: outputs and gradients against the spread of noisy references.

`expected` runs the reference once as it is and eight times with noise; `expectation` does so once
for all backends. At a kink (a Relu at zero, two equal maxima) an error of one rounding changes a
gradient by more than any spread: inputs that come near one are passed over, and others drawn. So
are those near a jump, where a conversion to whole numbers cuts.

Each tensor has the noise of its own dtype. In 16 bits that is a rounding to these at each
primitive: a network stores what each node makes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator, is_float
from d5test.networks.flow import BESIDE, has_flow
from d5test.networks.graph import Graph
from d5test.networks.model import inferred
from d5test.networks.network import Network
from d5test.networks.passes import Pass, double, dtypes_of
from d5test.networks.specialise import shapes_and_types, specialised
from d5test.networks.zoo.built import Built
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic, classes
from d5test.numerics.bounds import Bound
from d5test.numerics.ensemble import MEMBERS, Spread, noise, norm_ratio
from d5test.numerics.judgement import Judgement, judge, telling
from d5test.numerics.perturbed import rounded

Arrays = Mapping[str, Array]
Gap = Callable[..., tuple[Array, Array]]
"""Of an operator, the reach of errors and its inputs: how far elements are, and that reach."""
AFFORDABLE = 3 * 10**9
"""Multiplications of a model whose reference runs in seconds, nine times, in NumPy."""
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
    return classes(next(dtypes, "float32"), flushes=True)[-1]


def in_dtype(dtype: str, like: Arithmetic) -> Arithmetic:
    """The arithmetic of tensors in a dtype; of those whose dtype is unknown, that of others."""
    if not is_float(dtype) or dtype == like.storage.name:
        return like
    return classes(dtype, flushes=like.flushes)[-1]


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
    `DRAWS` draws, and `Unsupported` where a node has no reference.
    """
    for seed in range(DRAWS):
        try:
            return _expected(graph, draw(seed), loss, arithmetic)
        except KinkInDoubt as doubt:
            last = doubt
    raise last


def _expected(
    graph: Graph, inputs: Arrays, loss: str | None, arithmetic: Arithmetic
) -> Expectation:
    if has_flow(graph):
        if loss is not None:
            raise Unsupported(f"{graph.name}: {BESIDE}")
        _require_tensors(graph)
    parameters = () if loss is None else tuple(graph.parameters)
    wide = graph.with_arrays({n: double(x) for n, x in graph.parameters.items()})
    dtypes = dtypes_of(graph)

    def computed(name: str) -> Arithmetic:
        return in_dtype(dtypes.get(name, ""), arithmetic)

    plain = Pass(wide, inputs, lambda x, dtype: x, dtypes)
    plain.forward()
    gaps = _gaps(graph, dtypes, backwards=loss is not None)
    kinks = [graph.node(name).inputs[0] for name in gaps]
    spreads = {name: Spread(plain.values[name]) for name in (*graph.outputs, *kinks)}
    members: list[Pass] = []
    for seed in range(MEMBERS):
        member = Pass(wide, inputs, partial(_noisy, arithmetic, seed), dtypes)
        member.forward()
        for name, spread in spreads.items():
            if np.shape(member.values[name]) != spread.value.shape:
                raise KinkInDoubt(f"{name!r}: honest errors give it another shape")
            spread.add(member.values[name])
        if loss is not None:
            members.append(member)
    _away_from_kinks(graph, gaps, spreads, plain.values)
    if loss is not None:
        grads = plain.backward(loss)
        slopes = {name: Spread(grads.get(name, np.zeros(graph.parameters[name].shape)))
                  for name in parameters}  # fmt: skip
        while members:
            grads = members.pop().backward(loss)
            for name, spread in slopes.items():
                spread.add(grads.get(name, 0.0))
        spreads |= {f"gradient of {name}": spread for name, spread in slopes.items()}
    names = (*graph.outputs, *(f"gradient of {name}" for name in parameters))
    whose = (*graph.outputs, *parameters)
    bounds = tuple(
        spreads[name].bound(computed(of)) for name, of in zip(names, whose, strict=True)
    )
    lower = Pass(wide, inputs, partial(_coarse, arithmetic), dtypes)
    tells, void = telling(bounds, list(inputs.values()), lambda: _results(lower, loss, names))
    return Expectation(graph, inputs, loss, names, bounds, tells, void)


def _require_tensors(graph: Graph) -> None:
    """Raise `Unsupported` where an output is a sequence, or may be."""
    for name, info in inferred(graph).items():
        if name in graph.outputs and info.type.WhichOneof("value") != "tensor_type":
            raise Unsupported(f"the output {name!r} is no tensor")


def _noisy(arithmetic: Arithmetic, seed: int, x: Array, dtype: str) -> Any:
    """An array of a member of the ensemble."""
    return noise(in_dtype(dtype, arithmetic), seed)(x)


def _coarse(arithmetic: Arithmetic, x: Array, dtype: str) -> Any:
    """An array in the next lower precision."""
    return rounded(x, NEXT_LOWER[in_dtype(dtype, arithmetic).storage.name])


def _results(one: Pass, loss: str | None, names: Iterable[str]) -> tuple[Array | None, ...]:
    """What a pass makes, by name: outputs and gradients."""
    one.forward()
    results = dict(one.values)
    if loss is not None:
        results |= {f"gradient of {name}": dx for name, dx in one.backward(loss).items()}
    return tuple(getattr(x, "value", x) for x in map(results.get, names))


def _gaps(graph: Graph, dtypes: Mapping[str, str], *, backwards: bool) -> dict[str, Gap]:
    """The nodes with a kink, or with a jump, and how far from it an element is."""
    gaps = {}
    for node in graph.nodes:
        if not isinstance(node.op, Operator):
            continue
        if node.op.typed and is_float(dtypes[node.inputs[0]]):
            target = dtypes[node.outputs[0]]
            if not is_float(target):
                gaps[node.name] = _to_zero if target == "bool" else _to_whole
        elif node.kind in GAPS and backwards:
            gaps[node.name] = GAPS[node.kind]
    return gaps


def _away_from_kinks(
    graph: Graph, gaps: Mapping[str, Gap], spreads: Mapping[str, Spread], values: Mapping[str, Any]
) -> None:
    """Raise `KinkInDoubt` if an element may lie on either side of a kink or a jump."""
    for name, distance in gaps.items():
        node = graph.node(name)
        reach = REACH * spreads[node.inputs[0]].deviation
        gap, reach = distance(node.op, reach, *[values[read] for read in node.reads])
        if np.any(gap < reach):
            raise KinkInDoubt(f"node {name!r}: {np.sum(gap < reach)} elements are in doubt")


def _to_whole(op: Any, reach: Array, x: Array, *like: Array) -> tuple[Array, Array]:
    """How far each element is from the whole numbers but 0, at which what is cut jumps."""
    nearest = np.rint(x)
    return np.where(nearest == 0, np.inf, np.abs(x - nearest)), reach


def _to_zero(op: Any, reach: Array, x: Array, *like: Array) -> tuple[Array, Array]:
    """How far each element is from 0, which alone is false."""
    return np.abs(x), reach


def _to_bend(bends: Callable[..., Sequence[Any]]) -> Gap:
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


GAPS: Mapping[str, Gap] = {
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
