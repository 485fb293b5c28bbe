"""The networks that a worker holds, and what is asked of them, by name.

A network is loaded once and asked by its number. Its parameters are tensors of the framework until
they are fetched. NumPy and the framework only.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Backend, Unsupported
from d5test.worker.execution import Execution
from d5test.worker.program import Program, Wanted
from d5test.worker.timing import Rounds
from d5test.worker.wire import Bits

Inputs = Sequence[Bits]
Upstream = Sequence[Bits | None] | str
"""Upstream gradients of the outputs; or the name of the loss, whose own is 1."""


class ModelProgram:
    """A network that the framework reads itself: its serialised `model`, parameters inside.

    `values_model` is the same with the outputs of all `nodes` as outputs, in their order; a node
    is described by its name and those of its outputs.
    """

    def __init__(self, backend: Backend, described: Mapping[str, Any]) -> None:
        self.backend = backend
        self.at = ""
        self._nodes: list[tuple[str, tuple[str, ...]]] = described["nodes"]
        self._values_model: bytes = described["values_model"]
        self._run = backend.prepare(described["model"])
        self._run_values: Any = None

    def place(self, inputs: Inputs) -> list[Any]:
        """Tensors with these values, for the inputs in order."""
        return [
            x if x is None else [self._put(y) for y in x] if isinstance(x, list) else self._put(x)
            for x in inputs
        ]

    def _put(self, x: Bits) -> Any:
        return self.backend.put(x.array.copy(), x.dtype)

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


class Programs:
    """Loaded networks, by number."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._backend = execution.backend
        self._loaded: dict[int, Program | ModelProgram] = {}
        self._count = 0

    def answer(self, verb: str, *arguments: Any) -> Any:
        """What a verb answers: a method."""
        self._execution.where = verb
        return getattr(self, verb)(*arguments)

    def load(self, described: Mapping[str, Any]) -> int:
        """Make a network ready; its number."""
        kind = ModelProgram if self._backend.reads_models else Program
        program = kind(self._backend, described)
        self._count += 1
        self._loaded[self._count] = program
        return self._count

    def unload(self, number: int) -> None:
        """Give a network's memory back."""
        self._loaded.pop(number, None)

    def feed(self, number: int, values: Mapping[str, Bits]) -> None:
        """New values of parameters."""
        self._composed(number).feed(values)

    def fetch(self, number: int, names: Sequence[str]) -> dict[str, Bits]:
        """The values of parameters."""
        parameters = self._composed(number).parameters
        return {name: self._get(parameters[name]) for name in names}

    def infer(self, number: int, inputs: Inputs) -> list[Bits | None]:
        """The outputs."""
        program = self._named(number)
        return self._all(self._at(program, lambda: program.infer(program.place(inputs))))

    def backprop(
        self, number: int, inputs: Inputs, upstream: Upstream, wanted: Sequence[str]
    ) -> tuple[list[Bits | None], list[Bits | None]]:
        """The outputs, and the gradients of the parameters and inputs that are wanted."""
        program = self._composed(number)
        placed = program.place(inputs)
        grads = self._upstream(program, placed, upstream)
        outputs, gradients = self._at(program, lambda: program.backprop(placed, grads, wanted))
        return self._all(outputs), self._all(gradients)

    def nodes(
        self, number: int, inputs: Inputs, upstream: Upstream | None, wanted: Wanted
    ) -> list[Any]:
        """What each node made of what it was given: (name, outputs, upstream, gradients).

        The gradients are those of its inputs at `wanted`, pulled through this node alone from
        upstream gradients that were pulled through those behind it. Without `upstream` there are
        none: (name, outputs, None, None).
        """
        program = self._named(number)
        if isinstance(program, ModelProgram):
            values = program.values(program.place(inputs))
            return [(name, self._all(outputs), None, None) for name, outputs in values]
        placed = program.place(inputs)
        passed = self._at(program, lambda: list(program.nodes(placed)))
        outputs = [self._all(tensors) for _, _, tensors in passed]
        gradients: dict[str, tuple[Any, Any]] = {}
        if upstream is not None:
            grads = self._upstream(program, placed, upstream)
            pulled = self._at(program, lambda: list(program.pulled(passed, grads, wanted)))
            gradients = {name: (self._all(dys), self._all(dxs)) for name, dys, dxs in pulled}
        return [
            (step.name, ys, *gradients.get(step.name, (None, None)))
            for (step, _, _), ys in zip(passed, outputs, strict=True)
        ]

    def seconds(self, number: int, inputs: Inputs, passes: int) -> list[tuple[float, list[float]]]:
        """In each of several passes: the seconds of an inference, then of each node alone."""
        program = self._composed(number)
        placed = program.place(inputs)
        call = self._ready(program, placed)
        self._backend.wait(call())
        measured = []
        for _ in range(passes):
            start = time.perf_counter()
            self._backend.wait(call())
            whole = time.perf_counter() - start
            measured.append((whole, program.seconds(placed)))
        return measured

    def timing(
        self,
        number: int,
        feeds: Sequence[Inputs],
        upstream: Upstream | None,
        cold: bool,
        loops: int | None,
    ) -> Rounds:
        """Rounds over inferences, or with `upstream` over inference and backprop."""
        program = self._named(number)
        calls: list[Callable[[], Any]] = []
        for inputs in [program.place(inputs) for inputs in feeds]:
            if upstream is None:
                calls.append(self._ready(program, inputs))
            else:
                composed = self._composed(number)
                grads = self._upstream(composed, inputs, upstream)
                calls.append(partial(composed.backprop, inputs, grads, list(composed.parameters)))
        return Rounds(self._execution, calls, upstream is not None, cold, loops)

    def _ready(self, program: Program | ModelProgram, inputs: Sequence[Any]) -> Any:
        if isinstance(program, ModelProgram):
            return partial(program.infer, inputs)
        return partial(program.function(inputs), *program.tensors(inputs))

    def _at(self, program: Program | ModelProgram, run: Callable[[], Any]) -> Any:
        """What `run` returns; what it raises happened in the node that was being run."""
        program.at = ""
        try:
            return run()
        except Exception:
            if program.at:
                self._execution.where = f"node {program.at}"
            raise

    def _upstream(self, program: Program, placed: Sequence[Any], upstream: Upstream) -> list[Any]:
        if not isinstance(upstream, str):
            return [None if dy is None else program.place([dy])[0] for dy in upstream]
        at = program.outputs.index(upstream)
        array, dtype = self._get(program.infer(placed)[at])
        one = 0x3F80 if dtype == "bfloat16" else 1
        (ones,) = program.place([Bits(np.full_like(array, one), dtype)])
        return [ones if name == upstream else None for name in program.outputs]

    def _named(self, number: int) -> Program | ModelProgram:
        if number not in self._loaded:
            raise LookupError(f"no network {number} is loaded; the worker was restarted, perhaps")
        return self._loaded[number]

    def _composed(self, number: int) -> Program:
        program = self._named(number)
        if isinstance(program, ModelProgram):
            raise Unsupported(f"{self._backend.framework} runs models; it only infers")
        return program

    def _get(self, tensor: Any) -> Bits:
        return Bits(*self._backend.get(tensor))

    def _all(self, tensors: Sequence[Any]) -> list[Any]:
        """The values of tensors, None of None; of sequences, which models have, lists."""
        return [
            x if x is None else self._all(x) if isinstance(x, list) else self._get(x)
            for x in tensors
        ]
