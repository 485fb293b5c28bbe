"""TensorFlow as graphs, by tf.function, and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from d5test.backends.tensorflow.arguments import ValueNeeded
from d5test.backends.tensorflow.eager import TEMPLATE, TensorFlow, pulled
from d5test.backends.tensorflow.framework import tf


class Traced:
    """A function as graphs: one for each pattern of arguments, and in it one for their shapes.

    Arguments that are the same tensor are one argument of the graph: its gradient is whole.
    """

    def __init__(self, owner: TensorFlowCompiled, function: Callable[..., Any]) -> None:
        self.owner, self.function = owner, function
        self.graphs: dict[tuple[Any, ...], Any] = {}
        self.fixed = False
        """Whether integer arguments are constants of the graph."""

    def __call__(self, *inputs: Any) -> Any:
        if not tf.executing_eagerly():  # within another graph
            return self.function(*inputs)
        try:
            return self._run(inputs)
        except ValueNeeded:
            self.fixed = True
            return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> Any:
        given: list[Any] = []
        places: dict[int, int] = {}
        pattern: list[Any] = []
        for x in inputs:
            if x is None:
                pattern.append(None)
            elif self.fixed and x.dtype.is_integer:
                pattern.append((x.dtype.name, tuple(x.shape), x.numpy().tobytes()))
            else:
                place = places.setdefault(id(x), len(given))
                pattern.append(place)
                if place == len(given):
                    given.append(x)
        key = tuple(pattern)
        if key not in self.graphs:
            self.graphs[key] = self._graph(key)
        return self.graphs[key](*given)

    def _graph(self, pattern: tuple[Any, ...]) -> Any:
        def traced(*given: Any) -> Any:
            outputs = self.function(*(argument(place, given) for place in pattern))
            self.owner.traces += 1
            return outputs

        return tf.function(traced, autograph=False, jit_compile=self.owner.xla)


def argument(place: Any, given: Sequence[Any]) -> Any:
    if place is None or isinstance(place, int):
        return None if place is None else given[place]
    dtype, shape, data = place
    return tf.constant(np.frombuffer(data, dtype).reshape(shape))


class TensorFlowCompiled(TensorFlow):
    """Graphs by tf.function; the gradient is part of the graph."""

    mode = "compiled"
    template = replace(
        TEMPLATE, compiled="tensorflow.function({function}, autograph=False, jit_compile=False)"
    )
    xla = False

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.reset()
        self.traces = 0

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Traced(self, function)

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        inner = function.function if isinstance(function, Traced) else function
        n, chosen = len(inputs), tuple(wanted)
        if (inner, n, chosen) not in self._gradients:
            if len(self._gradients) > 15:
                self._gradients.pop(next(iter(self._gradients)))
            self._gradients[inner, n, chosen] = Traced(
                self, lambda *both: pulled(inner, both[:n], both[n:], chosen)
            )
        outputs, found = self._gradients[inner, n, chosen](*inputs, *grads)
        return tuple(outputs), list(found)

    def compilations(self) -> int | None:
        return self.traces

    def reset(self) -> None:
        self._gradients: dict[tuple[Any, ...], Traced] = {}


class TensorFlowXla(TensorFlowCompiled):
    """Graphs compiled by XLA; what XLA cannot compile raises, nothing falls back."""

    mode = "xla"
    template = replace(
        TEMPLATE, compiled="tensorflow.function({function}, autograph=False, jit_compile=True)"
    )
    xla = True
