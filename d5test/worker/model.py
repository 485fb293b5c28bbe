"""A network as a model that the framework reads itself: inference, and the tensors between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d5test.backends.base import Backend
from d5test.worker.wire import Bits


class ModelProgram:
    """A network with its serialised `model`, parameters inside.

    `values_model` is the same with the outputs of all `nodes` as outputs, in their order; a node
    is described by its name and those of its outputs.
    """

    def __init__(self, backend: Backend, described: Mapping[str, Any]) -> None:
        self.backend = backend
        self.at = ""
        self.inputs: tuple[str, ...] = tuple(described["inputs"])
        self.outputs: tuple[str, ...] = tuple(described["outputs"])
        self._nodes: list[tuple[str, tuple[str, ...]]] = described["nodes"]
        self._values_model: bytes = described["values_model"]
        self._run = backend.prepare(described["model"])
        self._run_values: Any = None

    def place(self, inputs: Sequence[Bits]) -> list[Any]:
        """Tensors with these values, for the inputs in order."""
        return [self.backend.put(x.array.copy(), x.dtype) for x in inputs]

    def infer(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs."""
        return tuple(self._run(*inputs))

    def values(self, inputs: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
        """The outputs of each node, by the node's name."""
        if self._run_values is None:
            self._run_values = self.backend.prepare(self._values_model)
        every = iter(self._run_values(*inputs))
        for name, outputs in self._nodes:
            yield name, [next(every) for _ in outputs]
