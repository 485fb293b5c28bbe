"""Which functions of its framework a row calls: recorded while the row runs on one case.

Wherever the row's code reaches the framework, by a global name, a closure or a table, a proxy
stands in for the time of one run. It records the call by its public name and makes it. Layers (an
instance of torch.nn.GELU) are real ones, whose class records their calls. What is not reached by a
name (methods and operators of tensors) or not public is not recorded but cannot hide: a recorded
call counts as the whole computation only if it takes no numbers but the inputs' and returns all
numbers of the outputs, and several as all that a row is composed of only if each takes the
inputs' or what another returned, and the outputs are such.

A call may end the process. So before each one a file can be written that says what is known of it.

Calls are written as source text (`d5test.worker.writing`). NumPy and the framework only.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial, wraps
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend
from d5test.worker.bound import OperatorView
from d5test.worker.public_names import callers, names_for
from d5test.worker.wire import Bits, dumps
from d5test.worker.writing import Unwritable, Writer, unwritable


class Numbers(NamedTuple):
    """The elements of a tensor in ascending order."""

    values: NDArray[np.float64]
    kind: str
    """`float`, `int`, `bool`, as the dtype's name begins; whole numbers differ in width only."""

    def within(self, *others: Numbers) -> bool:
        """Whether all numbers are among those of others, NaN among NaN."""
        alike = [other.values for other in others if other.kind == self.kind]
        known = np.concatenate([np.zeros(0), *alike])
        among = np.isin(self.values, known) | (np.isnan(self.values) & np.isnan(known).any())
        return bool(among.all())

    def among(self, others: Sequence[Numbers]) -> bool:
        """Whether one of them has the same numbers, each as often."""
        return any(np.array_equal(self.values, x.values, equal_nan=True) for x in others)


@dataclasses.dataclass(eq=False)
class Call:
    """One call: the function's public name, what it took, and what it returned.

    `write` gives the source text of the function. `numbers` are those of each tensor that it took;
    `None` if they cannot be read. `inner`: another call makes it.
    """

    name: str
    write: Callable[[Writer], str]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    numbers: list[Numbers] | None
    inner: bool = False
    result: Any = None

    @property
    def taken(self) -> list[Any]:
        """Its arguments."""
        return [*self.arguments, *self.keywords.values()]

    def source(self, writer: Writer) -> str:
        """The call as its caller would write it. Raises `Unwritable`."""
        return writer.call(self.write(writer), self.arguments, self.keywords)


class Proxy:
    """Stands for a module or a function of the framework, or for a function that a call returned.

    `write` gives its source text: by default its public name.
    """

    def __init__(
        self,
        value: Any,
        name: str,
        recorder: Recorder,
        write: Callable[[Writer], str] | None = None,
    ) -> None:
        self._value, self._name, self._recorder = value, name, recorder
        self._write = write or (lambda writer: writer.named(name))

    def __getattr__(self, name: str) -> Any:
        inner = None if isinstance(self._value, ModuleType) else self._write
        return self._recorder.public(
            getattr(self._value, name),
            f"{self._name}.{name}",
            inner and (lambda writer: f"{inner(writer)}.{name}"),
        )

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the function returns."""
        recorder = self._recorder
        call = recorder.record(self._name, self._write, self._value, arguments, keywords)
        layer = id(type(call.result)) in recorder.names
        if layer or recorder.computed(call.result):
            return call.result
        return recorder.public(call.result, self._name, call.source)  # jax.vmap(f) will compute


class Recorder:
    """The calls that a row makes on tensors of a backend."""

    def __init__(self, backend: Backend) -> None:
        self.calls: list[Call] = []
        self.others: list[Call] = []
        """Calls of which come neither tensors nor what stands for them: parts of a model, say."""
        self.around: Callable[[Call], AbstractContextManager[None]] = lambda _: nullcontext()
        """What surrounds each call that no other call makes."""
        self.names = names_for(backend)
        self._backend = backend
        self._tensor = type(backend.put(np.zeros(1, np.float32), "float32"))
        self._restore: list[Callable[[], None]] = []
        self._entered: dict[int, FunctionType] = {}
        self._within = False
        self._looking = False
        self._raised: tuple[BaseException, Call] | None = None

    def run(self, call: Callable[..., Any], op: OperatorView, tensors: Sequence[Any]) -> Any:
        """What a row's `call` returns; its framework is as it was afterwards."""
        for kind in callers(self._backend.framework):
            self._watch(kind)
        try:
            return self.replaced(call)(op, *tensors)
        finally:
            for restore in reversed(self._restore):
                restore()
            for function in self._entered.values():  # a row may keep what a call returned
                space = function.__globals__
                space.update({k: unwrapped(v) for k, v in space.items() if isinstance(v, Proxy)})

    def _watch(self, kind: type) -> None:
        """Record calls of layers, whose weights no source text has.

        Not those that the framework makes itself.
        """
        original = vars(kind)["__call__"]

        @wraps(original)
        def watched(layer: Any, *arguments: Any, **keywords: Any) -> Any:
            name = self.names.get(id(type(layer)))
            function = partial(original, layer)
            by = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 (no other is as quick)
            own = by.partition(".")[0] == self._backend.framework
            if name is None or own or self._within or id(layer) in self.names:  # jax.numpy.add
                return function(*arguments, **keywords)
            write = partial(unwritable, f"a {name}")
            return self.record(name, write, function, arguments, keywords).result

        with suppress(TypeError, AttributeError):  # classes that are written in C
            setattr(kind, "__call__", watched)  # noqa: B010 (mypy forbids the assignment)
            self._restore.append(partial(setattr, kind, "__call__", original))

    def record(
        self,
        name: str,
        write: Callable[[Writer], str],
        function: Callable[..., Any],
        arguments: Any,
        keywords: Any,
    ) -> Call:
        """Make a call; it is kept if tensors come of it, or an exception."""
        taken = unwrapped(arguments), unwrapped(keywords)
        if self._looking:
            return Call(name, write, *taken, None, result=function(*taken[0], **taken[1]))
        call = Call(name, write, *taken, self.numbers(taken), self._within)
        self.calls.append(call)
        within, self._within = self._within, True
        try:
            with nullcontext() if call.inner else self.around(call):
                call.result = function(*call.arguments, **call.keywords)
        except BaseException as error:
            if self._raised is None or self._raised[0] is not error:
                self._raised = error, call
            raise
        finally:
            self._within = within
        if not self.computed(call.result):
            self.calls.remove(call)
            if not (call.inner or isinstance(call.result, (bool, int, float, str, NoneType))):
                self.others.append(call)
        return call

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Within: calls are not the row's. Asking a symbol for its shape may call a layer."""
        before, self._looking = self._looking, True
        try:
            yield
        finally:
            self._looking = before

    def computed(self, result: Any) -> bool:
        """Whether a call returned tensors or what stands for them while a framework traces."""
        if isinstance(result, (list, tuple)):
            return any(map(self.computed, result))
        with self.looking():
            traced = hasattr(result, "shape") and hasattr(result, "dtype")
        known = isinstance(result, (np.ndarray, np.generic))
        return isinstance(result, self._tensor) or (traced and not known)

    def public(self, value: Any, name: str, write: Callable[[Writer], str] | None = None) -> Any:
        """A proxy for a module or a function of the framework; all else is returned unchanged."""
        function = callable(value) and not isinstance(value, type)
        if isinstance(value, ModuleType) or (function and not hasattr(value, "__enter__")):
            return Proxy(value, name, self, write)
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
            arguments, keywords = self.replaced(value.args), self.replaced(value.keywords)
            return partial(self.replaced(value.func), *arguments, **keywords)
        elif type(value) in (list, tuple, dict):
            return nested(self.replaced, value)
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
        self._entered[id(function)] = function
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
            for entry in value.values() if isinstance(value, dict) else value:
                yield from self.tensors(entry)

    def numbers(self, value: Any) -> list[Numbers] | None:
        """The numbers of each of these tensors; `None` if they cannot be read."""
        numbers = []
        try:
            for tensor in self.tensors(value):
                with self.looking():
                    array, dtype = self._backend.get(tensor)
                kind = dtype.removeprefix("b" if dtype == "bfloat16" else "u").rstrip("0123456789")
                if dtype == "bfloat16":
                    array = (array.astype(np.uint32) << 16).view(np.float32)
                numbers.append(Numbers(np.sort(array.astype(float), axis=None), kind))
        except Exception:  # noqa: BLE001 (while a framework traces, what it raises is its own)
            return None
        return numbers

    def bits(self, tensor: Any) -> Bits:
        """A tensor as it travels."""
        with self.looking():
            return Bits(*self._backend.get(tensor))

    def raised_by(self, error: BaseException) -> Call | None:
        """The call that raised an exception first, if one did."""
        known, call = self._raised or (None, None)
        return call if known is error else None

    def called(self) -> tuple[str, ...]:
        """The names of the functions, in the order of the first calls; see `record`."""
        calls = [c for c in self.calls if self.computed(c.taken)]
        calls = calls or self.calls or self.others
        return tuple(dict.fromkeys(call.name for call in calls))

    def whole(self, inputs: Sequence[Any], outputs: Any, last: Call | None) -> Call | None:
        """The one call that computes: it takes all numbers of the inputs that it reads, and the
        outputs are what it returns, or it is the `last` one, which raised or may end the process.
        The others only move numbers, or make tensors of none, as a bias that is absent, or how
        many boxes an image has.

        Outputs that cannot be read, since the framework computes only then, and raises, are those
        of the only call that takes any.
        """
        returned = [self.numbers(call.result) for call in self.calls]
        for k, call in enumerate(self.calls):
            if not (returned[k] or call.inner or call.result is None):
                returned[k] = None  # symbols, whose numbers another call computes
        computing = [
            (call, results)
            for call, results in zip(self.calls, returned, strict=True)
            if len(self.calls) == 1 or not (makes(call, results) or moves(call.numbers, results))
        ]
        read, wanted = self.numbers(inputs), self.numbers(outputs)
        if len(computing) != 1 or read is None:
            return None
        ((call, results),) = computing
        if wanted is None and selected(outputs, call.result):
            others = [c for c, made in zip(self.calls, returned, strict=True) if makes(c, made)]
            known = [*inputs, *(other.result for other in others)]
            alone = len(self.calls) == 1 + len(others)
            arguments = self.tensors((call.arguments, call.keywords))
            plain = all(place_of(t, known) is not None for t in arguments)
            return call if alone and plain else None
        if wanted is None:
            return None
        if call.numbers is None or results is None:
            return None
        if last not in (None, call):
            return None
        taken = call.numbers
        made = [
            y
            for other, results in zip(self.calls, returned, strict=True)
            if makes(other, results)
            for y in results or ()
            if y.kind == "int"
        ]
        plain = all(
            any(x.within(y) and y.within(*taken) for y in read)
            or (x.kind == "float" and not x.values.any())  # a state or a bias that is absent
            or x.among(made)
            for x in taken
        )
        return call if plain and all(y.among(results) for y in wanted) else None

    def complete(self, inputs: Sequence[Any], outputs: Any) -> bool:
        """Whether the calls are all that computes: each takes inputs, or what one before returned,
        as the outputs are; moved at most.
        """
        known, symbols = self.numbers(inputs) or [], set[int]()
        for call in self.calls:
            if call.inner:
                continue
            taken, returned = call.numbers, self.numbers(call.result)
            if taken is None or returned is None or not all(x.among(known) for x in taken):
                return False
            if not symbols.issuperset(map(id, self.symbols((call.arguments, call.keywords)))):
                return False
            known += returned
            symbols.update(map(id, self.symbols(call.result)))
        wanted = self.numbers(outputs)
        return bool(wanted) and all(y.among(known) for y in wanted or ())

    def symbols(self, value: Any) -> Iterator[Any]:
        """What stands for tensors, in nested lists, tuples and dictionaries."""
        if isinstance(value, (list, tuple, dict)):
            for entry in value.values() if isinstance(value, dict) else value:
                yield from self.symbols(entry)
        elif self.computed(value) and not isinstance(value, self._tensor):
            yield value


def record(
    backend: Backend,
    name: str,
    attributes: dict[str, Any],
    inputs: Any,
    form: str,
    trail: str = "",
) -> dict[str, Any]:
    """Which functions of the framework the row of an operator, or a form, calls on these inputs.

    names     their public names, in the order of the first calls; not of those that take no
              tensors (they make some), unless all do so; where none takes or returns any, of
              those that make what the row computes with: nodes of a graph, a compiled model.
    one       whether one of them is the whole computation; then it is the only one in `names`.
    moving    whether others took tensors, and only moved numbers: of these inputs.
    complete  whether they and those that make tensors are all that computes, of several.
    source    that call as source text, with x0, x1, ... for `tensors`; empty if it has none.
    modules   the framework's modules in which it is found, to be imported.
    tensors   the tensors that it takes, each with the position of the input that it is, or None.
    outputs   the row's outputs as source text of `y`, what the call returns; empty: more happens.

    Only `names` and `complete` where no call is the whole computation. `trail` is a file that
    holds the answer if the process ends: see `leaving`.
    """
    recorder, outputs, last = Recorder(backend), None, None
    tensors = [None if x is None else backend.put(x.array.copy(), x.dtype) for x in inputs]
    if trail:
        recorder.around = partial(leaving, trail, recorder, tensors)
    alone = True
    try:
        outputs = recorder.run(
            backend.row_for(name, form).call, OperatorView(name, attributes), tensors
        )
    except Exception as error:  # noqa: BLE001 (it may be the fault which is looked into)
        last = recorder.raised_by(error)
        alone = last is not None
    call = recorder.whole(tensors, outputs, last) if alone else None
    if call is None:
        return {"names": recorder.called(), "complete": recorder.complete(tensors, outputs)}
    return {
        "names": (call.name,),
        "one": True,
        "moving": any(c.numbers and c is not call and not c.inner for c in recorder.calls),
        **written(recorder, tensors, call),
        "outputs": selected(outputs, call.result),
    }


def written(recorder: Recorder, inputs: Sequence[Any], call: Call) -> dict[str, Any]:
    """The `source`, `modules` and `tensors` of a call; see `record`."""
    taken = list({id(t): t for t in recorder.tensors((call.arguments, call.keywords))}.values())
    writer = Writer(recorder.names, taken)
    try:
        source = call.source(writer)
    except Unwritable:
        source, taken = "", []
    return {
        "source": source,
        "modules": tuple(dict.fromkeys(writer.modules)),
        "tensors": tuple((recorder.bits(t), place_of(t, inputs)) for t in taken),
    }


@contextmanager
def leaving(trail: str, recorder: Recorder, inputs: Sequence[Any], call: Call) -> Iterator[None]:
    """Within: a call is made that may end the process, or hang, and a file says so. Afterwards
    the file names the calls so far.

    As `record` answers, but `fatal` is the name of this call, whose `source` it is, be it the
    whole computation or not.
    """
    whole = recorder.whole(inputs, None, call) is call
    names = (call.name,) if whole else recorder.called()
    answer = {"names": names, "one": whole, "fatal": call.name, "outputs": "y"}
    readable = call.numbers is not None
    write(trail, {**answer, **(written(recorder, inputs, call) if readable else {})})
    try:
        yield
    finally:
        recorder.numbers(call.result)  # some frameworks compute only now
        write(trail, {"names": recorder.called()})


def write(path: str, answer: dict[str, Any]) -> None:
    """Put an answer into a file, where it outlives this process."""
    with open(path, "wb") as file:
        file.write(dumps(answer))


def unwrapped(value: Any) -> Any:
    """What proxies in nested lists, tuples and dictionaries stand for."""
    if isinstance(value, Proxy):
        return value._value  # noqa: SLF001 (a name of its own would hide one of the framework's)
    return nested(unwrapped, value)


def nested(function: Callable[[Any], Any], value: Any) -> Any:
    """A list, tuple or dictionary with this function of all that it holds; else the value."""
    if type(value) is dict:
        return {key: function(entry) for key, entry in value.items()}
    return type(value)(map(function, value)) if type(value) in (list, tuple) else value


def used(code: CodeType) -> set[str]:
    """The names that a function's code may read from its module."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(used, inner))


def makes(call: Call, returned: list[Numbers] | None) -> bool:
    """Whether it takes no tensors, nor what stands for them, and returns some."""
    return call.numbers == [] and bool(returned)


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
    places = [place_of(y, result) for y in wanted]
    return "" if None in places else f"[{', '.join(f'y[{i}]' for i in places)}]"


def place_of(tensor: Any, tensors: Sequence[Any]) -> int | None:
    """Which of these objects it is, if it is one."""
    return next((i for i, x in enumerate(tensors) if x is tensor), None)
