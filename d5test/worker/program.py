"""A network where the framework lives: its nodes bound to rows, run as one function.

The nodes are planned once, for the shapes of the inputs that they are first run on. What is called
then is a loop over the framework's own functions; in a compiled mode the loop is compiled whole.
Parameters stay here. NumPy and the framework only.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from d5test.backends.base import Backend, Unsupported
from d5test.worker.bound import BadRow, OperatorView
from d5test.worker.wire import Bits

Call = Callable[..., Any]
Wanted = Mapping[str, Sequence[int]]
"""By node: the positions of inputs."""
ABSENT = 0
"""The slot of what is left out: it holds None."""


class Step(NamedTuple):
    """A node made ready: what it calls, where its tensors lie, which nobody reads later."""

    name: str
    call: Call
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    spent: tuple[int, ...]


Passed = tuple[Step, list[Any], tuple[Any, ...]]
"""A step, with the tensors that it took and gave."""


class Place(NamedTuple):
    """A node as it was described, with slots for names."""

    name: str
    op: OperatorView
    takes: tuple[int, ...]
    gives: tuple[int, ...]


class Program:
    """A described network on a backend.

    A description has `nodes` (name, operator, attributes, inputs, outputs), the names of the
    `inputs` and `outputs`, and the arrays of `parameters` and `constants`, by name.
    """

    def __init__(self, backend: Backend, described: Mapping[str, Any]) -> None:
        self.backend = backend
        self.at = ""
        """The node that is being run: what an exception is attributed to."""
        self.inputs: tuple[str, ...] = tuple(described["inputs"])
        self.outputs: tuple[str, ...] = tuple(described["outputs"])
        self.parameters = {name: self._put(x) for name, x in described["parameters"].items()}
        self._slots: dict[str, int] = {"": ABSENT}
        for name in (*self.parameters, *self.inputs, *described["constants"]):
            self._slots[name] = len(self._slots)
        self._template: list[Any] = [None] * len(self._slots)
        for name, x in described["constants"].items():
            self._template[self._slots[name]] = self._put(x)
        self._places = [self._place(*node) for node in described["nodes"]]
        self._template += [None] * (len(self._slots) - len(self._template))
        self._given = [self._slots[name] for name in (*self.parameters, *self.inputs)]
        self._results = [self._slots[name] for name in self.outputs]
        self._steps: list[Step] = []
        self._function: Call | None = None

    def place(self, inputs: Sequence[Bits]) -> list[Any]:
        """Tensors with these values, for the inputs in order."""
        return [self._put(x) for x in inputs]

    def tensors(self, inputs: Sequence[Any]) -> list[Any]:
        """What `function` takes: the parameters, then the inputs."""
        return [*self.parameters.values(), *inputs]

    def function(self, inputs: Sequence[Any]) -> Call:
        """The network as one function of parameters and inputs like these, in the backend's mode.

        It returns a tuple of the outputs. It is the same function for the same program, by which
        a compiled mode knows it.
        """
        if self._function is None:
            self._steps = list(self._planned(inputs))
            self._function = self.backend.compile(self._composed())
        return self._function

    def infer(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs."""
        result = self.function(inputs)(*self.tensors(inputs))
        return tuple(result)

    def backprop(
        self, inputs: Sequence[Any], upstream: Sequence[Any], wanted: Sequence[str]
    ) -> tuple[tuple[Any, ...], list[Any]]:
        """The outputs, and the gradients of the parameters and inputs that are wanted.

        `upstream` has a gradient for each output, None for one through which nothing flows.
        """
        names = [*self.parameters, *self.inputs]
        places = [names.index(name) for name in wanted]
        return self.backend.vjp(
            self.function(inputs), self.tensors(inputs), list(upstream), places
        )

    def nodes(self, inputs: Sequence[Any]) -> Iterator[Passed]:
        """Each step with the tensors that it took and gave, one after the other."""
        self.function(inputs)
        slots = self._filled(self.tensors(inputs))
        for step in self._steps:
            self.at = step.name
            taken = [slots[i] for i in step.takes]
            outputs = _tuple(step.call(*taken))[: len(step.gives)]
            for slot, tensor in zip(step.gives, outputs, strict=True):
                slots[slot] = tensor
            yield step, taken, outputs

    def pull(self, step: Step, taken: Sequence[Any], upstream: Sequence[Any],
             wanted: Sequence[int]) -> list[Any]:  # fmt: skip
        """The gradients of a step's inputs at `wanted`, by the framework, of this step alone.

        An input that is given twice has its whole gradient at the first of its places.
        """
        self.at = step.name
        distinct = sorted({step.takes.index(slot) for slot in step.takes if slot != ABSENT})
        places = [
            None if slot == ABSENT else distinct.index(step.takes.index(slot))
            for slot in step.takes
        ]

        def called(*tensors: Any) -> tuple[Any, ...]:
            inputs = (None if p is None else tensors[p] for p in places)
            return _tuple(step.call(*inputs))[: len(step.gives)]

        _, gradients = self.backend.vjp(
            called, [taken[i] for i in distinct], list(upstream),
            [distinct.index(i) for i in wanted],
        )  # fmt: skip
        return gradients

    def pulled(
        self, passed: Sequence[Passed], upstream: Sequence[Any], wanted: Wanted
    ) -> Iterator[tuple[str, list[Any], list[Any]]]:
        """Backwards through what `nodes` passed: a node's name, its upstream gradients, and those
        of its inputs at `wanted`. A node that nothing flows to is left out.
        """
        add, op = self.backend.rows["Add"].call, OperatorView("Add", {})
        sums: dict[int, Any] = {}

        def collect(slot: int, dx: Any) -> None:
            if dx is not None:
                there = sums.get(slot)
                sums[slot] = dx if there is None else _tuple(add(op, there, dx))[0]

        for slot, dy in zip(self._results, upstream, strict=True):
            collect(slot, dy)
        for step, taken, _ in reversed(passed):
            dys = [sums.get(slot) for slot in step.gives]
            places = wanted.get(step.name, ())
            if not places or all(dy is None for dy in dys):
                continue
            gradients = self.pull(step, taken, dys, places)
            for place, dx in zip(places, gradients, strict=True):
                collect(step.takes[place], dx)
            yield step.name, dys, gradients

    def feed(self, values: Mapping[str, Bits]) -> None:
        """New values of parameters."""
        for name, x in values.items():
            if name not in self.parameters:
                raise LookupError(f"no parameter is called {name!r}")
            self.parameters[name] = self._put(x)

    def seconds(self, inputs: Sequence[Any]) -> list[float]:
        """The seconds of each step of one pass, the device waited for behind each."""
        slots, spent = self._filled(self.tensors(inputs)), []
        wait = self.backend.wait
        for step in self._steps:
            taken = [slots[i] for i in step.takes]
            start = time.perf_counter()
            outputs = _tuple(step.call(*taken))
            wait([y for y in outputs if y is not None])
            spent.append(time.perf_counter() - start)
            for slot, tensor in zip(step.gives, outputs, strict=False):
                slots[slot] = tensor
            for slot in step.spent:
                slots[slot] = None
        return spent

    def _put(self, x: Bits) -> Any:
        return self.backend.put(x.array.copy(), x.dtype)

    def _place(self, name: str, operator: str, attributes: dict[str, Any],
               inputs: Sequence[str], outputs: Sequence[str]) -> Place:  # fmt: skip
        row = self.backend.rows.get(operator)
        if row is None:
            raise Unsupported(f"{self.backend.framework} has no row for {operator}")
        if row.outputs is not None and any(outputs[row.outputs :]):
            raise Unsupported(
                f"the row of {operator} returns {row.outputs} outputs, {name} needs more"
            )
        takes = tuple(self._slots[tensor] for tensor in inputs)
        gives = tuple(self._slots.setdefault(t, len(self._slots)) if t else -1 for t in outputs)
        while gives and gives[-1] == -1:
            gives = gives[:-1]
        return Place(name, OperatorView(operator, attributes), takes, gives)

    def _planned(self, inputs: Sequence[Any]) -> Iterator[Step]:
        """The steps, each planned on the tensors that reach it in one pass."""
        slots = self._filled(self.tensors(inputs))
        last = {slot: i for i, place in enumerate(self._places) for slot in place.takes}
        kept = {ABSENT, *self._results, *self._given}
        fixed = {i for i, x in enumerate(self._template) if x is not None}
        for i, place in enumerate(self._places):
            self.at = place.name
            row = self.backend.rows[place.op.name]
            taken = [slots[slot] for slot in place.takes]
            free = [v for v in row.values if v < len(taken) and place.takes[v] not in fixed]
            planned = all(place.takes[v] == ABSENT for v in free)
            call = row.plan(place.op, taken) if planned else partial(row.call, place.op)
            outputs = _tuple(call(*taken))
            if len(outputs) < len(place.gives):
                raise BadRow(f"the row of {place.op.name} returned {len(outputs)} outputs")
            for slot, tensor in zip(place.gives, outputs, strict=False):
                slots[slot] = tensor
            spent = tuple(
                s for s in {*place.takes, *place.gives}
                if s not in kept | fixed and last.get(s, i) == i and s != -1
            )  # fmt: skip
            for slot in spent:
                slots[slot] = None
            yield Step(place.name, call, place.takes, place.gives, spent)

    def _filled(self, tensors: Sequence[Any]) -> list[Any]:
        slots = [*self._template, None]  # the last is for outputs that are left out
        for slot, tensor in zip(self._given, tensors, strict=True):
            slots[slot] = tensor
        return slots

    def _composed(self) -> Call:
        steps = [(s.call, s.takes, s.gives, s.spent) for s in self._steps]
        filled, results = self._filled, tuple(self._results)

        def network(*tensors: Any) -> tuple[Any, ...]:
            slots = filled(tensors)
            for call, takes, gives, spent in steps:
                result = call(*[slots[i] for i in takes])
                if isinstance(result, (tuple, list)):
                    for slot, tensor in zip(gives, result):  # noqa: B905 (a row may return more)
                        slots[slot] = tensor
                else:
                    slots[gives[0]] = result
                for slot in spent:
                    slots[slot] = None
            return tuple([slots[i] for i in results])

        return network


def _tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)
