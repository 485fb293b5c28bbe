"""Networks in training, where the framework lives: a program, and an optimizer at work on it.

The loop over batches runs here. Parameters and the optimizer's state stay here until they are
fetched. A program is planned for inputs of one shape; all programs of a training share their
parameters. NumPy and the framework only.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from d5test.backends.base import Backend
from d5test.backends.updater import updater_of
from d5test.worker.bound import OperatorView
from d5test.worker.program import Program
from d5test.worker.wire import Bits

Run = Callable[[Program, Sequence[Any]], Sequence[Any]]
Batch = Sequence[Bits]
"""The inputs of a network, in its order."""


class Training:
    """A network whose parameters an optimizer changes.

    `setting` has the names of the `loss`, the `scores` (n, classes) and the input of the
    `labels` (n,), of the parameters that are `learned`, and the optimizer: its `kind`, `rule` and
    `hyperparameters`.
    """

    def __init__(
        self, backend: Backend, described: Mapping[str, Any], setting: Mapping[str, Any]
    ) -> None:
        self.backend, self.setting = backend, setting
        self._updates = updater_of(backend, setting["kind"], setting["rule"])
        self.programs = [Program(backend, described)]
        self.parameters = self.programs[0].parameters
        self.learned: tuple[str, ...] = tuple(setting["learned"])
        like = self._get(self.parameters[self.learned[0]])
        self._one = self._put(Bits(np.ones((), like.array.dtype), like.dtype))
        self.updater = self._begun()
        self.parameters |= self.updater.parameters

    def plan(self, described: Mapping[str, Any]) -> int:
        """Another program with the same parameters, for inputs of another shape; its place."""
        program = Program(self.backend, described)
        if list(program.parameters) != list(self.parameters):
            raise ValueError("a program of a training has the parameters of the others")
        program.parameters = self.parameters
        self.programs.append(program)
        return len(self.programs) - 1

    def train(self, place: int, batches: Sequence[Batch]) -> list[tuple[float, int, float]]:
        """Loss, how many were right, and seconds of each step."""
        return list(self._timed(self.programs[place], batches, self.step))

    def evaluate(self, place: int, batches: Sequence[Batch]) -> list[tuple[float, int, float]]:
        """The same of inferences."""
        return list(self._timed(self.programs[place], batches, Program.infer))

    def measure(self, place: int, batches: Sequence[Batch]) -> list[list[Bits]]:
        """Of each inference the outputs that the first program does not have."""
        program, known = self.programs[place], len(self.programs[0].outputs)
        return [
            [self._get(y) for y in program.infer(program.place(batch))[known:]]
            for batch in batches
        ]

    def feed(self, values: Mapping[str, Bits]) -> None:
        """New values of parameters that are not learned."""
        self.parameters |= {name: self._put(x) for name, x in values.items()}

    def step(self, program: Program, placed: Sequence[Any]) -> Sequence[Any]:
        """The outputs, and a step of the optimizer along the gradients of the loss."""
        loss = self.setting["loss"]
        upstream = [self._one if name == loss else None for name in program.outputs]
        outputs, gradients = program.backprop(placed, upstream, self.learned)
        self.updater.step(dict(zip(self.learned, gradients, strict=True)))
        self.parameters |= self.updater.parameters
        return outputs

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on: `t`, all parameters, the optimizer's slots."""
        t, slots = self.updater.state()
        return {
            "t": t,
            "parameters": {name: self._get(w) for name, w in self.parameters.items()},
            "slots": {name: tuple(map(self._get, kept)) for name, kept in slots.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.parameters |= {name: self._put(x) for name, x in state["parameters"].items()}
        self.updater = self._begun()
        slots = {name: tuple(map(self._put, kept)) for name, kept in state["slots"].items()}
        if state["t"]:
            self.updater.restore(state["t"], slots)
        self.parameters |= self.updater.parameters

    def _begun(self) -> Any:
        """The optimizer before its first step."""
        op = OperatorView(self.setting["rule"], self.setting["hyperparameters"])
        return self._updates(op, {name: self.parameters[name] for name in self.learned})

    def _timed(
        self, program: Program, batches: Sequence[Batch], run: Run
    ) -> Iterator[tuple[float, int, float]]:
        loss, scores = (program.outputs.index(self.setting[name]) for name in ("loss", "scores"))
        labels = program.inputs.index(self.setting["labels"])
        for batch in batches:
            start = time.perf_counter()
            outputs = run(program, program.place(batch))
            got = self._get(outputs[scores]).array
            right = int(np.count_nonzero(got.argmax(1) == batch[labels].array))
            value = float(self._get(outputs[loss]).array)
            self.backend.wait(list(self.parameters.values()))
            yield value, right, time.perf_counter() - start

    def _get(self, tensor: Any) -> Bits:
        return Bits(*self.backend.get(tensor))

    def _put(self, x: Bits) -> Any:
        return self.backend.put(x.array.copy(), x.dtype)


class Trainings:
    """The trainings that a worker holds, by number, and what is asked of them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._begun: dict[int, Training] = {}
        self._count = 0

    def answer(self, verb: str, *arguments: Any) -> Any:
        """`begin` (a number), `end`, or a method of `Training` by number."""
        if verb == "begin":
            self._count += 1
            self._begun[self._count] = Training(self._backend, *arguments)
            return self._count
        number, *rest = arguments
        if number not in self._begun:
            raise LookupError(f"no training {number} was begun; the worker was restarted, perhaps")
        if verb == "end":
            del self._begun[number]
            return None
        return getattr(self._begun[number], verb)(*rest)
