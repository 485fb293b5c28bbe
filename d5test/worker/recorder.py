"""Which functions of its framework a row calls: recorded while the row runs on one case.

Wherever the row's code reaches the framework, by a global name, a closure or a table, a proxy
stands in for the time of one run. It records the call by its public name and makes it. What is not
reached by a name (methods and operators of tensors) is not recorded but cannot hide: a recorded
call counts as the whole computation only if it takes no numbers but the inputs' and returns all
numbers of the outputs. NumPy and the framework only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend
from d5test.worker.bound import OperatorView
from d5test.worker.source import Unwritable, Writer, public_names
from d5test.worker.wire import Bits


class Numbers(NamedTuple):
    """The elements of a tensor in ascending order."""

    values: NDArray[np.float64]
    kind: str
    """`float`, `int`, `bool`, as the dtype's name begins; whole numbers differ in width only."""

    @property
    def zero(self) -> bool:
        """Whether it is a state or a bias that is absent."""
        return self.kind == "float" and not self.values.any()

    def within(self, *others: Numbers) -> bool:
        """Whether all numbers are among those of others, NaN among NaN."""
        alike = [other.values for other in others if other.kind == self.kind]
        known = np.concatenate([np.zeros(0), *alike])
        found = np.isin(self.values, known) | (np.isnan(self.values) & np.isnan(known).any())
        return bool(found.all())

    def among(self, others: Sequence[Numbers]) -> bool:
        """Whether one of them has the same numbers, each as often."""
        return any(np.array_equal(self.values, x.values, equal_nan=True) for x in others)


@dataclasses.dataclass
class Call:
    """One call: the function's public name, what it took, and what it returned.

    `numbers` are those of each tensor that it took; `None` if they cannot be read.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    numbers: list[Numbers] | None
    result: Any = None


class Proxy:
    """Stands for a module or a function of the framework."""

    def __init__(self, value: Any, name: str, recorder: Recorder) -> None:
        self._value, self._name, self._recorder = value, name, recorder

    def __getattr__(self, name: str) -> Any:
        return self._recorder.public(getattr(self._value, name), f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the function returns."""
        call = self._recorder.begin(self._name, unwrapped(arguments), unwrapped(keywords))
        call.result = result = self._value(*call.arguments, **call.keywords)
        if not self._recorder.computed(result):
            self._recorder.calls.remove(call)
            return self._recorder.public(result, self._name)  # jax.vmap(f), which will compute
        return result


class Recorder:
    """The calls that a row makes on tensors of a backend."""

    def __init__(self, backend: Backend) -> None:
        self.calls: list[Call] = []
        self.names = public_names(backend.framework)
        self._backend = backend
        self._tensor = type(backend.put(np.zeros(1, np.float32), "float32"))
        self._restore: list[Callable[[], None]] = []
        self._entered: set[int] = set()

    def run(self, call: Callable[..., Any], op: OperatorView, tensors: Sequence[Any]) -> Any:
        """What a row's `call` returns; its framework is as it was afterwards."""
        try:
            return self.replaced(call)(op, *tensors)
        finally:
            for restore in reversed(self._restore):
                restore()

    def computed(self, result: Any) -> bool:
        """Whether a call returned tensors or what stands for them while a framework traces."""
        if isinstance(result, (list, tuple)):
            return any(map(self.computed, result))
        traced = hasattr(result, "shape") and hasattr(result, "dtype")
        known = isinstance(result, (np.ndarray, np.generic))
        return isinstance(result, self._tensor) or (traced and not known)

    def begin(self, name: str, arguments: Any, keywords: Any) -> Call:
        """Record a call that is about to be made."""
        call = Call(name, arguments, keywords, self.numbers((arguments, keywords)))
        self.calls.append(call)
        return call

    def public(self, value: Any, name: str) -> Any:
        """A proxy of a function or a module of the framework; all else as it is."""
        if isinstance(value, ModuleType) or is_function(value):
            return Proxy(value, name, self)
        return value

    def replaced(self, value: Any) -> Any:
        """The same value, with a proxy wherever it reaches the framework."""
        if isinstance(value, ModuleType):
            ours = value.__name__.partition(".")[0] == self._backend.framework
            return Proxy(value, value.__name__, self) if ours else value
        if id(value) in self.names:
            return self.public(value, self.names[id(value)])
        if isinstance(value, FunctionType):
            self._enter(value)
        elif isinstance(getattr(value, "__wrapped__", None), FunctionType):  # jitted by the row
            return self.replaced(value.__wrapped__)
        elif isinstance(value, partial):
            keywords = {key: self.replaced(each) for key, each in value.keywords.items()}
            return partial(self.replaced(value.func), *map(self.replaced, value.args), **keywords)
        elif type(value) in (list, tuple):
            return type(value)(map(self.replaced, value))
        elif type(value) is dict:
            return {key: self.replaced(each) for key, each in value.items()}
        elif dataclasses.is_dataclass(value) and callable(value) and not isinstance(value, type):
            fields = [f.name for f in dataclasses.fields(value) if f.init]
            return dataclasses.replace(
                value, **{name: self.replaced(getattr(value, name)) for name in fields}
            )
        return value

    def _enter(self, function: FunctionType) -> None:
        """Replace what a function of the row's uses, and what those that it calls use."""
        module = (function.__module__ or "").partition(".")[0]
        if id(function) in self._entered or module == self._backend.framework:
            return
        self._entered.add(id(function))
        space = function.__globals__
        for name in used(function.__code__):
            if name in space:
                self._set(space[name], partial(space.__setitem__, name))
        for cell in function.__closure__ or ():
            self._set(cell.cell_contents, partial(setattr, cell, "cell_contents"))

    def _set(self, before: Any, put: Callable[[Any], None]) -> None:
        after = self.replaced(before)
        if after is not before:
            self._restore.append(partial(put, before))
            put(after)

    def tensors(self, value: Any) -> Iterator[Any]:
        """The tensors in nested lists, tuples and dictionaries."""
        if isinstance(value, self._tensor):
            yield value
        elif isinstance(value, (list, tuple, dict)):
            for each in value.values() if isinstance(value, dict) else value:
                yield from self.tensors(each)

    def numbers(self, value: Any) -> list[Numbers] | None:
        """The numbers of each of these tensors; `None` if they cannot be read."""
        found = []
        try:
            for tensor in self.tensors(value):
                array, dtype = self._backend.get(tensor)
                kind = dtype.removeprefix("b" if dtype == "bfloat16" else "u").rstrip("0123456789")
                if dtype == "bfloat16":
                    array = (array.astype(np.uint32) << 16).view(np.float32)
                found.append(Numbers(np.sort(array.astype(float), axis=None), kind))
        except Exception:  # noqa: BLE001 (while a framework traces, what it raises is its own)
            return None
        return found

    def whole(self, inputs: Sequence[Any], outputs: Any) -> Call | None:
        """The one call that computes: it takes all numbers of the inputs that it reads, and the
        outputs are what it returns. The others only move numbers.
        """
        returned = [self.numbers(call.result) for call in self.calls]
        computing = [
            (call, results)
            for call, results in zip(self.calls, returned, strict=True)
            if len(self.calls) == 1 or not moves(call.numbers, results)
        ]
        given, wanted = self.numbers(inputs), self.numbers(outputs)
        if len(computing) != 1 or given is None or wanted is None:
            return None
        ((call, results),) = computing
        if call.numbers is None or results is None:
            return None
        taken = call.numbers
        plain = all(x.zero or any(x.within(y) and y.within(*taken) for y in given) for x in taken)
        return call if plain and all(y.among(results) for y in wanted) else None


def record(backend: Backend, name: str, attributes: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """Which functions of the framework the row of an operator calls on these inputs.

    names     their public names, in the order of the first calls.
    one       whether one of them is the whole computation; then it is the only one in `names`.
    source    that call as source text, with x0, x1, ... for `tensors`; empty if it has none.
    tensors   the tensors that it takes, each with the position of the input that it is, or None.
    outputs   the row's outputs as source text of `y`, what the call returns; empty: more happens.
    """
    recorder = Recorder(backend)
    tensors = [None if x is None else backend.put(x.array.copy(), x.dtype) for x in inputs]
    try:
        outputs = recorder.run(backend.rows[name].call, OperatorView(name, attributes), tensors)
    except Exception:  # noqa: BLE001 (that it raises may be the fault which is looked into)
        outputs = None
    call = recorder.whole(tensors, outputs)
    if call is None:
        names = tuple(dict.fromkeys(call.name for call in recorder.calls))
        return {"names": names, "one": False, "source": "", "tensors": (), "outputs": ""}
    taken: list[Any] = []
    for tensor in recorder.tensors((call.arguments, call.keywords)):
        if not any(tensor is each for each in taken):
            taken.append(tensor)
    try:
        source = Writer(recorder.names, taken).call(call.name, call.arguments, call.keywords)
    except Unwritable:
        source, taken = "", []
    places = [next((i for i, x in enumerate(tensors) if x is t), None) for t in taken]
    return {
        "names": (call.name,),
        "one": True,
        "source": source,
        "tensors": tuple((Bits(*backend.get(t)), i) for t, i in zip(taken, places, strict=True)),
        "outputs": selected(outputs, call.result),
    }


def is_function(value: Any) -> bool:
    """Whether it is called, and no class."""
    return callable(value) and not isinstance(value, type)


def unwrapped(value: Any) -> Any:
    """What proxies in nested lists, tuples and dictionaries stand for."""
    if isinstance(value, Proxy):
        return value._value  # noqa: SLF001 (a name of its own would hide one of the framework's)
    if type(value) in (list, tuple):
        return type(value)(map(unwrapped, value))
    if type(value) is dict:
        return {key: unwrapped(each) for key, each in value.items()}
    return value


def used(code: CodeType) -> set[str]:
    """The names that a function's code may read from its module."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(used, inner))


def moves(taken: list[Numbers] | None, returned: list[Numbers] | None) -> bool:
    """Whether a call returns all numbers that it took, and no others."""
    if taken is None or returned is None:
        return False
    return all(x.within(*returned) for x in taken) and all(y.within(*taken) for y in returned)


def selected(outputs: Any, result: Any) -> str:
    """The outputs of a row in source text, where `y` is what a call returned; empty: others."""
    if outputs is result:
        return "y"
    if not isinstance(result, (list, tuple)):
        return ""
    wanted = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    places = [next((i for i, y in enumerate(result) if y is each), None) for each in wanted]
    return "" if None in places else f"[{', '.join(f'y[{i}]' for i in places)}]"
