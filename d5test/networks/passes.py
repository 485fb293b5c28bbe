"""One pass over a graph by its references, forwards and backwards.

It runs on arrays of any kind: plain float64, or arrays that carry noise or round. `lift` makes
them, by the dtype that a tensor has in the graph. So a conversion between dtypes (Cast) costs
what a backend pays for it: a rounding, where the new dtype lacks the number.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Operator, dtype_of, is_float
from d5test.dtypes import NAMES
from d5test.networks.flow import Flow, has_flow
from d5test.networks.graph import Graph, Node, Value
from d5test.networks.specialise import runnable, shapes_and_types, specialised
from d5test.numerics.arithmetic import format_of
from d5test.numerics.perturbed import Perturbed, round_to

Lift = Callable[[Array, str], Any]
"""What is computed with in place of a float64 array, of a tensor in this dtype."""


class Pass:
    """One pass. `values` has every tensor that was met, by name.

    `dtypes` are those of the tensors; without, all are the same and nothing converts them.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Array],
        lift: Lift,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self._graph = graph
        self._nodes = [] if has_flow(graph) else runnable(graph)
        if drawn := sorted({node.kind for node, op in self._nodes if op.random}):
            raise by_chance(" and ".join(drawn))
        self._lift = lift
        self._dtypes = dtypes or {}
        arrays = {**graph.constants, **graph.parameters, **inputs}
        self.values: dict[str, Any] = {name: self._lifted(x, name) for name, x in arrays.items()}
        self._outputs: dict[str, tuple[Any, ...]] = {}

    def forward(self) -> None:
        """Run the nodes."""
        if has_flow(self._graph):
            given = {name: self.values[name] for name in self._graph.inputs}
            results = Flow(self._graph, self._ready)(given)
            named = zip(self._graph.outputs, results, strict=True)
            self.values |= {name: self.entered(y, name) for name, y in named}
        for node, op in self._nodes:
            inputs = self._inputs(node)
            if op.draws(*inputs):
                raise by_chance(node.kind)
            with np.errstate(all="ignore"):
                if op.typed:
                    outputs: tuple[Any, ...] = (self._converted(inputs[0], node.outputs[0], op),)
                else:
                    outputs = op(*inputs)
            self._outputs[node.name] = outputs
            pairs = zip(node.outputs, outputs, strict=False)
            self.values |= {name: y for name, y in pairs if name}

    def backward(self, loss: str) -> dict[str, Any]:
        """The gradients of all tensors that a loss depends on; of all their readers the sum."""
        grads = {loss: self._lifted(np.ones(np.shape(self.values[loss])), loss)}
        for node, op in reversed(self._nodes):
            dys = tuple(grads.get(name) if name else None for name in node.outputs)
            if not op.differentiable or all(dy is None for dy in dys):
                continue
            with np.errstate(all="ignore"):
                if op.typed:
                    dxs: tuple[Any, ...] = (self._pulled(dys[0], node.inputs[0], op),)
                else:
                    dxs = op.vjp(dys, self._inputs(node), self._outputs[node.name])
            for name, dx in zip(node.inputs, dxs, strict=False):
                if name and dx is not None:
                    grads[name] = grads[name] + dx if name in grads else dx
        return grads

    def _ready(self, nodes: Graph) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        """Nodes between control flow. All floating-point numbers are in one dtype there."""
        floats = (x.dtype for x in self._graph.inputs.values() if is_float(x.dtype))
        dtype = next(floats, "float32")
        known: dict[Any, Graph] = {}

        def run(given: Mapping[str, Any]) -> Mapping[str, Any]:
            values = {name: _value_of(x, dtype) for name, x in given.items()}
            key = tuple(values.items())
            if key not in known:
                shapes = {name: tuple(x.shape) for name, x in given.items()}
                known[key] = specialised(nodes.with_(inputs=values), shapes)
                _require_one_dtype(known[key], dtype)
            one = Pass(known[key], {}, self._lift, dtypes_of(known[key]))
            one.values |= {name: one.entered(x, name) for name, x in given.items()}
            one.forward()
            return {name: one.values[name] for name in nodes.outputs}

        return run

    def entered(self, x: Any, name: str) -> Any:
        """A tensor that comes from elsewhere: a constant is lifted, and all others are already."""
        return self._lifted(np.asarray(x), name) if is_plain(x) else x

    def _inputs(self, node: Node) -> tuple[Any, ...]:
        return tuple(self.values[name] if name else None for name in node.inputs)

    def _lifted(self, x: Array, name: str) -> Any:
        return self._lift(double(x), self._dtypes.get(name, "")) if x.dtype.kind in "fV" else x

    def _pulled(self, dy: Any, name: str, op: Operator) -> Any:
        """The gradient of what was converted, in its own dtype; whole numbers have none."""
        return self._converted(dy, name, op) if is_float(self._dtypes[name]) else None

    def _converted(self, x: Any, name: str, op: Any) -> Any:
        """A tensor in the dtype of the one called `name`."""
        dtype = self._dtypes[name]
        value: Any = x.value if isinstance(x, Perturbed) else x
        if not is_float(dtype):
            if "float" in dtype:
                raise Unsupported(f"{name}: numbers in {dtype} are not judged in a network")
            return op.converted(value, dtype_of(dtype))
        number = format_of(dtype)
        value = value.astype(np.float64)
        beyond = np.abs(value) >= number.largest * (1 + number.u)
        value = np.where(beyond, np.copysign(np.inf, value), value)
        lifted = self._lift(value, dtype)
        if not isinstance(lifted, Perturbed):
            return lifted
        there = round_to(value, number.precision) == value
        return lifted.like(np.where(there, lifted.value, lifted.perturb(value, np.abs(value))))


def is_plain(x: Any) -> bool:
    """Whether an array carries nothing beside its values."""
    return isinstance(x, np.ndarray | np.generic)


def _value_of(x: Any, dtype: str) -> Value:
    """What stands for a tensor: its floating-point numbers are in one dtype."""
    whole = is_plain(x) and x.dtype.kind not in "fV"
    return Value(x.dtype.name if whole else dtype, tuple(x.shape))


def _require_one_dtype(graph: Graph, dtype: str) -> None:
    """Raise `Unsupported` where floating-point numbers are converted, or cut."""
    dtypes = dtypes_of(graph)
    for node in graph.nodes:
        if isinstance(node.op, Operator) and node.op.typed:
            source, target = dtypes[node.inputs[0]], dtypes[node.outputs[0]]
            if target != dtype if is_float(target) else is_float(source):
                what = f"{source} to {target}, beside control flow"
                raise Unsupported(f"{node.name}: {what}: judged by itself alone")


def by_chance(what: str) -> Unsupported:
    """What is raised of a node whose result has no one value."""
    return Unsupported(f"what depends on {what} is drawn by chance, and has no one value")


def double(x: Array) -> Array:
    """Floating-point numbers in float64: the array itself if it is, or holds other things."""
    return x.astype(np.float64, copy=False) if x.dtype.kind in "fV" else x


def dtypes_of(graph: Graph) -> dict[str, str]:
    """The dtypes of a graph's tensors, by name."""
    _, types = shapes_and_types(graph)
    found = {name: NAMES[number] for name, number in types.items() if number in NAMES}
    return found | {name: x.dtype.name for name, x in graph.constants.items()}
