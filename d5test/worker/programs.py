"""The networks that a worker holds, and what is asked of them, by name.

A network is loaded once and asked by its number. Its parameters are tensors of the framework until
they are fetched. NumPy and the framework only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from d5test.backends.base import Unsupported
from d5test.worker.execution import Execution
from d5test.worker.model import ModelProgram
from d5test.worker.program import Program, ones_like
from d5test.worker.timing import Rounds
from d5test.worker.wire import Bits

Upstream = Sequence[Bits | None] | str
"""Upstream gradients of the outputs; or the name of the loss, whose own is 1."""


class Programs:
    """Loaded networks, by number."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._backend = execution.backend
        self._loaded: dict[int, Program | ModelProgram] = {}
        self._count = 0
        self._verbs: Mapping[str, Callable[..., Any]] = {
            "load": self.load,
            "unload": self.unload,
            "feed": self.feed,
            "fetch": self.fetch,
            "infer": self.infer,
            "backprop": self.backprop,
            "nodes": self.nodes,
            "seconds": self.seconds,
        }

    def answer(self, verb: str, *arguments: Any) -> Any:
        """What a verb answers."""
        self._execution.where = verb
        return self._verbs[verb](*arguments)

    def load(self, described: Mapping[str, Any]) -> int:
        """Make a network ready; its number."""
        program = (
            ModelProgram(self._backend, described)
            if self._backend.reads_models
            else Program(self._backend, described)
        )
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

    def infer(self, number: int, inputs: Sequence[Bits]) -> list[Bits]:
        """The outputs."""
        program = self._named(number)
        outputs = self._at(program, lambda: program.infer(program.place(inputs)))
        return [self._get(y) for y in outputs]

    def backprop(
        self, number: int, inputs: Sequence[Bits], upstream: Upstream, wanted: Sequence[str]
    ) -> tuple[list[Bits], list[Bits | None]]:
        """The outputs, and the gradients of the parameters and inputs that are wanted."""
        program = self._composed(number)
        placed = program.place(inputs)
        grads = self._upstream(program, placed, upstream)
        outputs, found = self._at(program, lambda: program.backprop(placed, grads, wanted))
        gradients = [None if dx is None else self._get(dx) for dx in found]
        return [self._get(y) for y in outputs], gradients

    def nodes(
        self,
        number: int,
        inputs: Sequence[Bits],
        upstream: Upstream | None,
        wanted: Mapping[str, Sequence[int]],
    ) -> list[Any]:
        """What each node made of what it was given: (name, outputs, upstream, gradients).

        The gradients are those of its inputs at `wanted`, pulled through this node alone from
        upstream gradients that were pulled through those behind it. Without `upstream` there are
        none: (name, outputs, None, None).
        """
        program = self._named(number)
        if isinstance(program, ModelProgram):
            values = program.values(program.place(inputs))
            return [(n, [self._get(y) for y in ys], None, None) for n, ys in values]
        placed = program.place(inputs)
        passed = self._at(program, lambda: list(program.nodes(placed)))
        answers: dict[str, list[Any]] = {
            step.name: [step.name, [self._get(y) for y in given], None, None]
            for step, _, given in passed
        }
        if upstream is not None:
            grads = self._upstream(program, placed, upstream)
            pulled = self._at(program, lambda: list(program.pulled(passed, grads, wanted)))
            for name, dys, found in pulled:
                answers[name][2] = [None if dy is None else self._get(dy) for dy in dys]
                answers[name][3] = [None if dx is None else self._get(dx) for dx in found]
        return [tuple(answer) for answer in answers.values()]

    def seconds(
        self, number: int, inputs: Sequence[Bits], passes: int
    ) -> list[tuple[float, list[float]]]:
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
        feeds: Sequence[Sequence[Bits]],
        upstream: Upstream | None,
        cold: bool,
        loops: int | None,
    ) -> NetworkTiming:
        """Rounds over inferences, or with `upstream` over inference and backprop."""
        program = self._named(number)
        placed = [program.place(inputs) for inputs in feeds]
        calls: list[Callable[[], Any]] = []
        for inputs in placed:
            if upstream is None:
                calls.append(self._ready(program, inputs))
            else:
                composed = self._composed(number)
                grads = self._upstream(composed, inputs, upstream)
                wanted = list(composed.parameters)
                calls.append(partial(composed.backprop, inputs, grads, wanted))
        return NetworkTiming(self._execution, calls, upstream is not None, cold, loops)

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
        loss = self._get(program.infer(placed)[at])
        return [
            program.place([ones_like(loss)])[0] if k == at else None
            for k in range(len(program.outputs))
        ]

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


class NetworkTiming(Rounds):
    """Rounds over a network."""

    def __init__(
        self,
        execution: Execution,
        calls: Sequence[Any],
        backward: bool,
        cold: bool,
        loops: int | None,
    ) -> None:
        self._backward = backward
        super().__init__(execution, calls, cold=cold, loops=loops)

    def answers(self) -> list[Any]:
        """Outputs and gradients of the last call of each feed."""
        answers = []
        for last in self.last:
            outputs, found = last if self._backward else (last, None)
            gradients = None if found is None else [self._execution.maybe_get(g) for g in found]
            answers.append(([self._execution.get(y) for y in outputs], gradients))
        return answers
