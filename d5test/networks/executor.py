"""A network on a backend: inference, and inference with backprop, wherever the backend runs.

    executor = Executor(client, network)
    outputs = executor.inference({"x": images})
    outputs, gradients = executor.inference_and_backprop({"x": images, "labels": labels}, "loss")

The network runs whole where the backend is. Its parameters are the framework's own tensors there,
until they are fetched. It is made ready once for each set of input shapes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.client.messages import Crashed, Hung, Round, Timed, plain
from d5test.networks.graph import Graph
from d5test.networks.model import to_model
from d5test.networks.network import Network
from d5test.networks.profile import Profile
from d5test.networks.specialise import runnable, specialised

ANSWER_SECONDS = 900.0
"""Seconds until a request counts as hung: a compiler may need minutes for a whole network."""
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


class Passed(NamedTuple):
    """A node, what it gave, and what came back: upstream, and gradients at `wanted`."""

    name: str
    outputs: tuple[Array, ...]
    upstream: tuple[Array | None, ...] | None
    gradients: tuple[Array | None, ...] | None


class Loaded(NamedTuple):
    """A network made ready for some shapes: its number where it runs, and its graph."""

    number: int
    graph: Graph


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

    def inference(self, inputs: Arrays) -> dict[str, Array]:
        """The outputs, by name. Raises ValueError where the inputs do not fit the network."""
        loaded = self._ready(inputs)
        with self._events("inference"):
            outputs = self._ask("infer", loaded, _ordered(loaded, inputs))
        if self.listeners:
            self._tell_operators(inputs)
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
            outputs, found = self._ask(
                "backprop", loaded, _ordered(loaded, inputs), _upstream(loaded, loss), names
            )
        return (
            dict(zip(loaded.graph.outputs, outputs, strict=True)),
            dict(zip(names, found, strict=True)),
        )

    def nodes(
        self,
        inputs: Arrays,
        loss: Loss | None = None,
        wanted: Mapping[str, Sequence[int]] | None = None,
    ) -> list[Passed]:
        """What each node gave, in order, and with a loss what came back through it.

        Gradients are the framework's, of one node at a time: those of its inputs at `wanted`, by
        the node's name, from upstream gradients that came back through the nodes behind it.
        """
        loaded = self._ready(inputs)
        upstream = None if loss is None else _upstream(loaded, loss)
        answer = self._ask("nodes", loaded, _ordered(loaded, inputs), upstream, dict(wanted or {}))
        return [
            Passed(
                name,
                tuple(ys),
                None if dys is None else tuple(dys),
                None if dxs is None else tuple(dxs),
            )
            for name, ys, dys, dxs in answer
        ]

    def profile(self, inputs: Arrays, passes: int = 1) -> Profile:
        """Seconds of an inference, and of each node alone, in each of several passes."""
        loaded = self._ready(inputs)
        found = self._ask("seconds", loaded, _ordered(loaded, inputs), passes)
        whole, alone = zip(*found, strict=True)
        names = [node.name for node in loaded.graph.nodes]
        return Profile(dict(zip(names, zip(*alone, strict=True), strict=True)), tuple(whole))

    def start_timing(
        self, feeds: Sequence[Arrays], loss: Loss | None = None, loops: int | None = None
    ) -> int:
        """Warm up, on these inputs in turn; how many calls make a round: `loops`, if given.

        With a loss: inference and backprop.
        """
        loaded = self._ready(feeds[0])
        given = [_ordered(loaded, inputs) for inputs in feeds]
        upstream = None if loss is None else _upstream(loaded, loss)
        request = loaded.number, given, upstream, False, loops
        found: int = self.client.ask("start_network_timing", *request)
        return found

    def time_round(self) -> Round:
        """Seconds a call of one round."""
        measured: Round = self.client.time_round()
        return measured

    def stop_timing(self) -> Timed:
        """What the last timed calls returned, and the peak memory since the start."""
        timed: Timed = self.client.stop_timing()
        return timed

    def graph(self, inputs: Arrays) -> Graph:
        """The graph that runs on inputs of these shapes."""
        return self._ready(inputs).graph

    def fetch(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """The values of parameters as they are where the network runs."""
        names = self.network.parameters if names is None else tuple(names)
        if not self._loaded or self.client.about.reads_models:
            return self.network.fetch(names)
        loaded = next(iter(self._loaded.values()))
        there = [name for name in names if name in loaded.graph.parameters]
        found: dict[str, Array] = self._ask("fetch", loaded, there)
        return {**self.network.fetch(names), **found}

    def feed(self, **values: Array) -> None:
        """New values of parameters, of their shapes and dtypes. Raises KeyError or ValueError."""
        for name, array in values.items():
            self.network.feed(name, array)
        if self.client.about.reads_models:
            self.unload()
        for loaded in self._loaded.values():
            there = {name: x for name, x in values.items() if name in loaded.graph.parameters}
            self._ask("feed", loaded, there)

    def unload(self) -> None:
        """Give the memory back where the network runs."""
        while self._loaded:
            _, loaded = self._loaded.popitem()
            self._ask("unload", loaded)

    def _ready(self, inputs: Arrays) -> Loaded:
        """The network made ready for inputs of these shapes."""
        for name, value in self.network.inputs.items():
            if name in inputs and inputs[name].dtype.name != value.dtype:
                raise ValueError(
                    f"input {name!r} is {value.dtype}, given {inputs[name].dtype.name}"
                )
        key = tuple(sorted((name, x.shape) for name, x in inputs.items()))
        if key not in self._loaded:
            shapes = {name: x.shape for name, x in inputs.items()}
            graph = specialised(self.network.graph, shapes)
            described = describe(graph, self.network.graph, self.client.about.reads_models)
            self._loaded[key] = Loaded(self.client.ask("network", "load", described), graph)
        return self._loaded[key]

    def _ask(self, verb: str, loaded: Loaded, *arguments: Any) -> Any:
        try:
            return self.client.ask("network", verb, loaded.number, *arguments)
        except (Crashed, Hung):
            self._loaded.clear()  # with the process; the next request loads anew
            raise

    @contextmanager
    def _events(self, what: str) -> Iterator[None]:
        for listener in self.listeners:
            listener(Event(what, self.network.name))
        start = time.perf_counter()
        yield
        for listener in self.listeners:
            listener(Event(what, self.network.name, time.perf_counter() - start))

    def _tell_operators(self, inputs: Arrays) -> None:
        try:
            profile = self.profile(inputs)
        except Unsupported:
            return
        for name, (spent,) in profile.nodes.items():
            for listener in self.listeners:
                listener(Event("operator", name, spent))


def describe(graph: Graph, original: Graph, as_model: bool) -> dict[str, Any]:
    """A graph as it travels. Raises `Unsupported` where a node has no operator of ours.

    As a model it is the `original`, whatever operators it has.
    """
    ends = {"inputs": tuple(graph.inputs), "outputs": graph.outputs}
    if as_model:
        made = {node.name: tuple(takewhile(bool, node.outputs)) for node in graph.nodes}
        every = tuple(tensor for tensors in made.values() for tensor in tensors)
        return {
            **ends,
            "nodes": list(made.items()),
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
    return [np.asarray(inputs[name]) for name in loaded.graph.inputs]


def _upstream(loaded: Loaded, loss: Loss) -> str | list[Array | None]:
    """The name of the loss, or an upstream gradient for each output."""
    outputs = loaded.graph.outputs
    for name in (loss,) if isinstance(loss, str) else loss:
        if name not in outputs:
            raise ValueError(f"no output is called {name!r}, only {', '.join(outputs)}")
    return loss if isinstance(loss, str) else [loss.get(name) for name in outputs]
