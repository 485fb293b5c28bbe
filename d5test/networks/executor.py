"""A network on a backend: inference, and inference with backprop, wherever the backend runs.

    executor = Executor(client, network)
    outputs = executor.inference({"x": images})
    outputs, gradients = executor.inference_and_backprop({"x": images, "labels": labels}, "loss")

The network runs whole where the backend is. Its parameters are the framework's own tensors there,
until they are fetched. It is made ready once for each set of input shapes. One with control flow
runs in parts (`d5test.networks.flow`), unless the backend reads models: then it infers only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.client.messages import Crashed, Hung, plain
from d5test.networks.flow import BESIDE, Flow, has_flow
from d5test.networks.graph import Graph, Value
from d5test.networks.model import to_model
from d5test.networks.network import Network
from d5test.networks.specialise import runnable, specialised

ANSWER_SECONDS = 900.0
"""Seconds until a request counts as hung: a compiler may need minutes for a whole network."""
KEPT = 16
"""Shapes for which nodes between control flow stay loaded: a loop may change them each time."""
Arrays = Mapping[str, Array]
Loss = str | Mapping[str, Array]
"""The output whose gradient is 1; or upstream gradients, by output."""


class Event(NamedTuple):
    """What happened: `inference`, `backprop` or `operator`, of which network or node.

    seconds  how long it took where the backend is; None before it has happened.
    """

    what: str
    name: str
    seconds: float | None = None


class NodeResult(NamedTuple):
    """A node, what it gave, and what came back: upstream, and gradients at `wanted`."""

    name: str
    outputs: Sequence[Array]
    upstream: Sequence[Array | None] | None
    gradients: Sequence[Array | None] | None


class Loaded(NamedTuple):
    """A network made ready for some shapes: its number where it runs, its graph, and its parts if
    it runs in such."""

    number: int
    graph: Graph
    flow: Flow | None = None


@dataclass(frozen=True)
class Profile:
    """Seconds of each node alone, and of the whole inference, one value a pass.

    A node alone is waited for, the whole only at its end: where a device works on while the next
    node is prepared, the overhead can be negative.
    """

    nodes: Mapping[str, tuple[float, ...]]
    whole: tuple[float, ...]

    @property
    def overhead(self) -> float:
        """FrameworkOverhead: 1 - (sum of the nodes) / (whole), the median of the passes."""
        sums = np.sum(list(self.nodes.values()), axis=0)
        return float(np.median(1 - sums / np.array(self.whole)))

    @property
    def medians(self) -> dict[str, float]:
        """The median seconds of each node."""
        return {name: float(np.median(seconds)) for name, seconds in self.nodes.items()}


class Executor:
    """A network on the backend of a client (`d5test.client.client.Judged`).

    `listeners` are called with an `Event` before and after each inference and backprop; where
    they are there, an inference is followed by one pass in which each operator is waited for,
    and its event.
    """

    def __init__(
        self, client: Any, network: Network, listeners: Sequence[Callable[[Event], None]] = ()
    ) -> None:
        self.client = client
        self.network = network.copy()
        self.listeners = tuple(listeners)
        self._loaded: dict[Any, Loaded] = {}
        self._pieces: list[Piece] = []

    def inference(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs, by name. Raises ValueError where the inputs do not fit the network."""
        loaded = self._ready(inputs)
        with self._events("inference"):
            if loaded.flow is None:
                outputs = self._ask("infer", loaded, _ordered(loaded, inputs))
            else:
                given = dict(zip(loaded.graph.inputs, _ordered(loaded, inputs), strict=True))
                outputs = self._lost_with_process(loaded.flow, given)
        if self.listeners:
            with suppress(Unsupported):
                for name, (seconds,) in self.profile(inputs).nodes.items():
                    self._tell(Event("operator", name, seconds))
        return dict(zip(loaded.graph.outputs, outputs, strict=True))

    def inference_and_backprop(
        self, inputs: Arrays, loss: Loss, wanted: Sequence[str] | None = None
    ) -> tuple[dict[str, Array], dict[str, Array | None]]:
        """The outputs, and the gradient of each parameter (or of those wanted, inputs among them).

        A gradient is None if the framework has none.
        """
        loaded = self._ready(inputs)
        names = tuple(loaded.graph.parameters) if wanted is None else tuple(wanted)
        with self._events("backprop"):
            outputs, gradients = self._ask(
                "backprop", loaded, _ordered(loaded, inputs), _upstream(loaded, loss), names
            )
        named = dict(zip(loaded.graph.outputs, outputs, strict=True))
        return named, dict(zip(names, gradients, strict=True))

    def nodes(
        self,
        inputs: Arrays,
        loss: Loss | None = None,
        wanted: Mapping[str, Sequence[int]] | None = None,
    ) -> list[NodeResult]:
        """What each node gave, in order, and with a loss what came back through it.

        Gradients are the framework's, of one node at a time: those of its inputs at `wanted`, by
        the node's name, from upstream gradients that came back through the nodes behind it.
        """
        loaded = self._ready(inputs)
        request = _ordered(loaded, inputs), _upstream(loaded, loss), dict(wanted or {})
        return [NodeResult(*node) for node in self._ask("nodes", loaded, *request)]

    def profile(self, inputs: Arrays, passes: int = 1) -> Profile:
        """Seconds of an inference, and of each node alone, in each of several passes."""
        loaded = self._ready(inputs)
        seconds = self._ask("seconds", loaded, _ordered(loaded, inputs), passes)
        whole, alone = zip(*seconds, strict=True)
        names = [node.name for node in loaded.graph.nodes]
        return Profile(dict(zip(names, zip(*alone, strict=True), strict=True)), tuple(whole))

    def start_timing(
        self, feeds: Sequence[Arrays], loss: Loss | None = None, loops: int | None = None
    ) -> int:
        """Warm up, on these inputs in turn; how many calls make a round: `loops`, if given.

        With a loss: inference and backprop.
        """
        loaded = self._ready(feeds[0])
        arrays = [_ordered(loaded, inputs) for inputs in feeds]
        request = _whole(loaded), arrays, _upstream(loaded, loss), False, loops
        return int(self.client.ask("start_network_timing", *request))

    def graph(self, inputs: Arrays) -> Graph:
        """The graph that runs on inputs of these shapes."""
        return self._ready(inputs).graph

    def fetch(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """The values of parameters as they are where the network runs."""
        names = self.network.parameters if names is None else tuple(names)
        if not self._loaded or self.client.about.reads_models:
            return self.network.fetch(names)
        loaded = next(iter(self._loaded.values()))
        if loaded.flow is not None:
            return self.network.fetch(names)
        there = [name for name in names if name in loaded.graph.parameters]
        return {**self.network.fetch(names), **self._ask("fetch", loaded, there)}

    def feed(self, **values: Array) -> None:
        """New values of parameters, of their shapes and dtypes. Raises KeyError or ValueError."""
        for name, array in values.items():
            self.network.feed(name, array)
        if self.client.about.reads_models or has_flow(self.network.graph):
            self.unload()
        for loaded in self._loaded.values():
            there = {name: x for name, x in values.items() if name in loaded.graph.parameters}
            self._ask("feed", loaded, there)

    def unload(self) -> None:
        """Give the memory back where the network runs."""
        for piece in self._pieces:
            piece.unload()
        self._pieces.clear()
        while self._loaded:
            _, loaded = self._loaded.popitem()
            if loaded.flow is None:
                self._ask("unload", loaded)

    def _ready(self, inputs: Arrays) -> Loaded:
        """The network made ready for inputs of these shapes."""
        if text := [name for name, x in inputs.items() if any(map(is_text, elements(x)))]:
            raise Unsupported(f"the input {text[0]!r} is text")
        for name, value in self.network.inputs.items():
            if name in inputs:
                _require(name, value, inputs[name])
        held = {name for name, value in self.network.inputs.items() if value.within}
        if missing := held - inputs.keys():
            raise ValueError(f"not fed: {', '.join(sorted(missing))}")
        shapes = {name: x.shape for name, x in inputs.items() if name not in held}
        key = tuple(sorted(shapes.items()))
        if key not in self._loaded:
            self._loaded[key] = self._load(specialised(self.network.graph, shapes))
        return self._loaded[key]

    def _load(self, graph: Graph) -> Loaded:
        as_model = self.client.about.reads_models
        if has_flow(graph) and not as_model:
            return Loaded(0, graph, Flow(graph, self._piece))
        described = describe(graph, self.network.graph, as_model)
        return Loaded(self.client.ask("network", "load", described), graph)

    def _piece(self, graph: Graph) -> Piece:
        """Nodes of a graph that runs in parts, on the same backend."""
        self._pieces.append(Piece(self.client, graph))
        return self._pieces[-1]

    def _ask(self, verb: str, loaded: Loaded, *arguments: Any) -> Any:
        return self._lost_with_process(
            self.client.ask, "network", verb, _whole(loaded), *arguments
        )

    def _lost_with_process(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What is answered; where the process ends, all that is loaded is lost with it."""
        try:
            return call(*arguments)
        except (Crashed, Hung):
            self._loaded.clear()  # the next request loads anew
            self._pieces.clear()
            raise

    @contextmanager
    def _events(self, what: str) -> Iterator[None]:
        self._tell(Event(what, self.network.name))
        start = time.perf_counter()
        yield
        self._tell(Event(what, self.network.name, time.perf_counter() - start))

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


class Piece:
    """Nodes between control flow, made ready once for each set of shapes, of which `KEPT` stay."""

    def __init__(self, client: Any, graph: Graph) -> None:
        self._client, self._graph = client, graph
        self._executors: dict[Any, Executor] = {}

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs, by name."""
        return self.executor(inputs).inference(inputs)

    def executor(self, inputs: Arrays) -> Executor:
        """The nodes as a network of their own, for inputs like these."""
        values = {name: Value(x.dtype.name, x.shape) for name, x in inputs.items()}
        key = tuple(values.items())
        if key not in self._executors:
            if len(self._executors) == KEPT:
                self._executors.pop(next(iter(self._executors))).unload()
            network = Network.of(self._graph.with_(inputs=values))
            self._executors[key] = Executor(self._client, network)
        return self._executors[key]

    def unload(self) -> None:
        """Give the memory back where it runs."""
        while self._executors:
            self._executors.popitem()[1].unload()


def describe(graph: Graph, original: Graph, as_model: bool) -> dict[str, Any]:
    """A graph as it travels. Raises `Unsupported` where a node has no operator of ours.

    As a model it is the `original`, whatever operators it has.
    """
    ends = {"inputs": tuple(graph.inputs), "outputs": graph.outputs}
    if as_model:
        outputs = [(node.name, tuple(takewhile(bool, node.outputs))) for node in graph.nodes]
        every = tuple(tensor for _, tensors in outputs for tensor in tensors)
        return {
            **ends,
            "nodes": outputs,
            "model": to_model(original).SerializeToString(),
            "values_model": to_model(graph.with_(outputs=every)).SerializeToString(),
        }
    read = {*graph.outputs, *(tensor for node in graph.nodes for tensor in node.reads)}
    return {
        **ends,
        "nodes": [
            (node.name, *plain(op), node.inputs, [t if t in read else "" for t in node.outputs])
            for node, op in runnable(graph)
        ],
        "parameters": dict(graph.parameters),
        "constants": dict(graph.constants),
    }


def _ordered(loaded: Loaded, inputs: Arrays) -> list[Array]:
    """The inputs in the network's order."""
    given = [inputs[name] for name in loaded.graph.inputs]
    return [x if x is None or isinstance(x, list) else np.asarray(x) for x in given]


def elements(value: Any) -> list[Any]:
    """The arrays of an input: it is one, or a list of some, or None."""
    return value if isinstance(value, list) else [] if value is None else [value]


def is_text(x: Array) -> bool:
    """Whether an array holds text."""
    return x.dtype.kind in "OSU"


def _require(name: str, value: Value, x: Any) -> None:
    """Raise ValueError where an input that is fed is not what it should be."""
    absent = x is None and "optional" in value.within
    if not absent and (x is None or isinstance(x, list) != ("sequence" in value.within)):
        what = " of ".join((*value.within, "tensor"))
        raise ValueError(f"input {name!r} is {what}, given {type(x).__name__}")
    if others := {a.dtype.name for a in elements(x)} - {value.dtype}:
        raise ValueError(f"input {name!r} is {value.dtype}, given {', '.join(sorted(others))}")


def _whole(loaded: Loaded) -> int:
    """The number of a network that runs whole. Raises `Unsupported`."""
    if loaded.flow is not None:
        raise Unsupported(f"{loaded.graph.name}: {BESIDE}")
    return loaded.number


def _upstream(loaded: Loaded, loss: Loss | None) -> str | list[Array | None] | None:
    """The name of the loss, or an upstream gradient for each output; nothing without a loss."""
    outputs = loaded.graph.outputs
    for name in (loss,) if isinstance(loss, str) else loss or ():
        if name not in outputs:
            raise ValueError(f"no output is called {name!r}, only {', '.join(outputs)}")
    return [loss.get(name) for name in outputs] if isinstance(loss, Mapping) else loss
