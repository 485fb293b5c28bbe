"""The front door, for anybody's own test: `check` a function, `judge` one result.

    def test_mine():
        d5test.check(my_softmax, like=Softmax(axis=-1))
        d5test.check(my_rms, like=lambda x: x / np.sqrt((x * x).mean(-1)), inputs={"x": "n d"})

Requirements: the same cases, bars, messages and counts as the suites'; no worker process and no
plugin; a fault is an AssertionError, and so is a test in which too little was judged.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature, unwrap
from pathlib import Path
from traceback import walk_tb
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import onnx.defs
from numpy.typing import NDArray

from d5test.backends.base import Backend, Row, Unsupported
from d5test.backends.numpy import Numpy
from d5test.case import FLOATS, Arrays, Operator, is_float
from d5test.checks import CHECKS
from d5test.client.client import InProcessClient, in_this_process
from d5test.client.messages import Advice
from d5test.exploration.draws import seed_of_cell
from d5test.exploration.explore import COMPILED, Exploration
from d5test.formula import Described, Input, operator_of
from d5test.modules import is_of_torch
from d5test.numerics.arithmetic import EXPLAINED, Arithmetic, classes
from d5test.numerics.bounds import Bounds, forward_bounds, gradient_bounds, lower_precision
from d5test.numerics.judgement import Judgement, telling, tightest
from d5test.outcome.assessment import Assessment
from d5test.outcome.tally import Tally, rarely_judged
from d5test.reference.operators import OPERATORS
from d5test.worker.bound import BadRow
from d5test.worker.service import Service

Function = Callable[..., Any]
MISCALLED = re.compile(r"takes .*positional argument.* given|missing \d+ required positional")
"""What Python says of a call with too many or too few arguments."""
STARRED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
ELSE = (
    'Draw values by which they do not, as Input(..., values="normal"), write the formula so that '
    "no order is in doubt and nothing overflows, or leave a gradient out by wrt= (docs/formula.md)"
)
"""What to do where an output or a gradient cannot be judged."""
TIGHTER = '. If it computes in float32 and rounds each result once, arithmetic="F" says so'
"""What to do where the bars of 16 bits are too wide."""
OF_A_FRAMEWORK = 'backend="torch", say, gives tensors of a framework'


class Untested(AssertionError):
    """Too little was judged to say that the function is right."""


class Functions(Numpy):
    """A function of NumPy arrays, and perhaps one for its gradients, as a backend."""

    def __init__(self, gradient: Function | None) -> None:
        super().__init__("cpu")
        self._gradient = gradient
        self.refused = "" if gradient is not None else "no gradient= was given"
        """Why there is no gradient; empty if there is one."""
        self._given: tuple[Any, ...] = ()

    def row(self, call: Function) -> Function:
        """A row's call, whose results are read by NumPy and whose inputs are remembered."""

        def read(op: Any, *inputs: Any) -> tuple[Any, ...]:
            self._given = inputs
            with np.errstate(all="ignore"):  # judged is what is returned, not what is flagged
                result = call(op, *inputs)
            if isinstance(result, Mapping):
                result = tuple(result.values())
            results = result if isinstance(result, tuple | list) else (result,)
            return tuple(map(_array, results))

        return read

    def vjp(
        self,
        function: Function,
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        """An array that the function is given twice gets the sum of both gradients."""
        outputs = function(*inputs)
        if self._gradient is None:
            raise Unsupported(self.refused)
        with np.errstate(all="ignore"):
            gradients = self._gradient(tuple(grads), self._given, outputs)
        gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
        totals = []
        for i in wanted:
            parts = [
                _array(dx)
                for x, dx in zip(self._given, gradients, strict=False)
                if x is inputs[i] and dx is not None
            ]
            totals.append(np.asarray(sum(parts[1:], parts[0])) if parts else None)
        return tuple(outputs), totals


def _array(result: Any) -> NDArray[Any]:
    """A result as NumPy reads it. Raises `BadRow` for what holds no numbers."""
    kind = f"{type(result).__module__}.{type(result).__qualname__}"
    try:
        array = np.asarray(result)
    except Exception as error:
        raise BadRow(f"NumPy cannot read the {kind} that was returned: {error}") from error
    if array.dtype.kind in "OSUmM":
        what = "None" if result is None else f"a {kind}"
        raise BadRow(f"{what} was returned, where an array of numbers is wanted")
    return array


class OneFunction(InProcessClient):
    """One function under test in this process, in the place of a row of a backend."""

    def __init__(self, name: str, backend: Backend, advice: Advice) -> None:
        self.name = name
        self.advice = advice
        self._requests = Service(lambda: backend)


def check(
    function: Function,
    like: Operator | type[Operator] | Function,
    *,
    inputs: Mapping[str, str | Input] | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    wrt: str | Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    dtypes: str | tuple[str, ...] | list[str] = ("float64", "float32"),
    examples: int = 25,
    gradient: Function | None = None,
    backend: str | None = None,
    device: str = "cpu",
    outputs: int | None = None,
    arithmetic: str = "S",
    seed: int = 0,
) -> None:
    """Judge a function that should compute what an operator computes, on drawn cases.

    function  takes the operator's inputs (an optional one that is absent is `None`, or left out
              at the end) and returns its outputs: NumPy arrays, or whatever NumPy can read; or the
              tensors of `backend`
    like      the operator with its attributes, each known to the 32 bits in which ONNX stores it;
              a class: attributes are drawn as well, and the function has to take them as keyword
              arguments; or a formula, a function of NumPy arrays, whose gradient is derived
    inputs, sizes, wrt, attributes
              of a formula: see `d5test.formula.operator_of`. The function gets the inputs in the
              order of the formula's parameters, and the attributes as keyword arguments
    gradient  `gradient(grads, inputs, outputs)` returns a gradient for each input, or `None`
    backend   `torch`, say: tensors are made, and gradients are taken, as this backend does, and
              the function is granted what the backend's own row of this operator is
    device    where this backend makes its tensors, `cuda:0` say
    outputs   how many of the operator's outputs the function returns, from the first; None: as
              many as the backend's row does, else all
    arithmetic
              in 16 bits, what the function may round: `F`, it computes in float32 and rounds
              each result once; `P`, each primitive's result, with sums in float32; `S`, everything

    Asked are the checks `forward` and `gradient` (in 16 bits `low_precision`, by the bars of
    `arithmetic`) and `untouched`: inputs must be left as they are. NaN and
    infinity, degenerate shapes and other layouts are the suites' to ask, and so are errors in ULPs
    on fixed inputs (`accuracy`), and whether a call depends on those before it (`no_caching`).

    The function runs in this process, without a time limit: one that hangs has to be interrupted.

    Raises the smallest `Fault` found, and `Untested` where too little could be judged;
    `ValueError` and `TypeError` if an argument makes no sense.
    """
    __tracebackhide__ = True
    dtypes = tuple(dtypes) if isinstance(dtypes, tuple | list) else (dtypes,)
    described = {"inputs": inputs, "sizes": sizes, "wrt": wrt, "attributes": attributes}
    judge_by = _operator(like, {k: v for k, v in described.items() if v is not None})
    _require_sense(function, judge_by, dtypes, examples, gradient, backend, outputs)
    if arithmetic not in EXPLAINED:
        known = "; ".join(f"{name}: {what}" for name, what in EXPLAINED.items())
        raise ValueError(f"arithmetic={arithmetic!r}: in 16 bits there are {known}")
    tested = _tested(backend, device, gradient)
    client = _client(function, judge_by, tested, outputs, dtypes, arithmetic)
    operator: type[Operator] = judge_by if isinstance(judge_by, type) else type(judge_by)
    differentiable = operator.backward is not Operator.backward
    pulled = (gradient is not None or backend is not None) and differentiable
    for dtype in dtypes:
        wide = dtype in ("float64", "float32")
        names = ["forward" if wide else "low_precision", "untouched"]
        names += ["gradient"] * (wide and pulled)
        for name in names:
            _explore(client, name, judge_by, dtype, examples, seed)


def judge(
    op: Operator,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    grads: Sequence[Any] | None = None,
    *,
    flushes: bool = False,
) -> Judgement:
    """The judgement of one result of an operator: right if `.right`.

    `inputs` and `outputs` are what NumPy can read, in the dtype in which the result was computed;
    an optional input that is absent is `None`. With the upstream gradients `grads` the `outputs`
    are the gradients, one for each input, `None` for one that is not judged. `flushes`: results
    below the smallest normal number may be zero.
    """
    arrays: Arrays = tuple(None if x is None else np.asarray(x) for x in inputs)
    results = tuple(None if y is None else np.asarray(y) for y in outputs)
    upstream = (
        None if grads is None else tuple(None if g is None else np.asarray(g) for g in grads)
    )
    dtype = next((x.dtype.name for x in arrays if x is not None and is_float(x.dtype.name)), None)
    if dtype is None:
        raise ValueError(f"no input of {op!r} is of a dtype that is judged: {', '.join(FLOATS)}")

    def bounds(arithmetic: Arithmetic) -> Bounds:
        if upstream is None:
            return forward_bounds(op, arrays, arithmetic)
        return gradient_bounds(op, arrays, upstream, arithmetic)

    arithmetics = classes(dtype, flushes=flushes, rounded_attributes=True)
    expected = bounds(arithmetics[0])
    for k, (bound, got) in enumerate(zip(expected, results, strict=False)):
        if bound is not None and got is not None and got.shape != bound.value.shape:
            return Judgement(ratio=np.inf, share=0.0, output=k)
    judgement, expected = tightest(arithmetics, bounds, results)
    tells, void = telling(
        expected,
        () if op.unchanged else arrays,
        lambda: lower_precision(op, arrays, upstream, dtype),
    )
    return Judgement(**{**vars(judgement), "telling": tells, "void": void})


def _operator(like: Any, described: Mapping[str, Any]) -> Any:
    """`like`, or the operator that a formula with such inputs is."""
    __tracebackhide__ = True
    operator = isinstance(like, Operator) or (
        isinstance(like, type) and issubclass(like, Operator)
    )
    if operator or isinstance(like, type) or not callable(like):
        if described and operator:
            options = f"{', '.join(described)}= {'are' if len(described) > 1 else 'is'}"
            raise TypeError(f"{options} for a formula; {like!r} says itself what its inputs are")
        return like
    if not described.get("inputs"):
        names = _parameters(like) or ["x"]
        axes = ", ".join(f'"{name}": "n d"' for name in names)
        raise TypeError(
            f"like={name_of(like)} is a formula: say which axes its inputs have, as in "
            f"inputs={{{axes}}}"
        )
    if is_of_torch(like):
        from d5test.modules.reference import operator_of as operator_of_torch  # torch is there

        return operator_of_torch(like, **described)
    return operator_of(like, **described)


def _parameters(function: Function) -> list[str]:
    """The parameters without a default."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    return [p.name for p in parameters if p.default is Parameter.empty and p.kind not in STARRED]


def _require_sense(
    function: Any,
    like: Any,
    dtypes: tuple[Any, ...],
    examples: Any,
    gradient: Any,
    backend: str | None,
    outputs: Any,
) -> None:
    """Raise what says which argument makes no sense, and what to write instead."""
    __tracebackhide__ = True
    if not callable(function):
        raise TypeError(f"the first argument is the function to check, not {function!r}")
    if isinstance(like, str):
        near = [name for name in OPERATORS if name.lower() == like.lower()]
        near = near or get_close_matches(like, OPERATORS, 1, 0) or ["Softmax"]
        raise TypeError(
            f"like={like!r} is a name: give the operator itself, like={near[0]}(), from "
            f"`from d5test.reference.operators import {near[0]}`"
        )
    operator = like if isinstance(like, type) else type(like)
    if not issubclass(operator, Operator):
        raise TypeError(
            "like= takes an operator, such as Softmax(axis=-1), or a formula in NumPy, "
            f"not {like!r}"
        )
    if isinstance(like, type):
        _require_keywords(function, like)
    for dtype in dtypes:
        if dtype not in FLOATS:
            raise ValueError(f"no dtype {dtype!r} is judged; there are {', '.join(FLOATS)}")
    if not dtypes:
        raise ValueError(f"dtypes= is empty; there are {', '.join(FLOATS)}")
    for name, number in (("examples", examples), ("outputs", 1 if outputs is None else outputs)):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name}= is a whole number of at least 1, not {number!r}")
    known = onnx.defs.has(operator.__name__) and not operator.domain
    most = onnx.defs.get_schema(operator.__name__).max_output if known else outputs
    if issubclass(operator, Described):
        most = operator.results
    if outputs is not None and outputs > most:
        raise ValueError(f"outputs={outputs}: {operator.__name__} has {most} at most")
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f'backend= is a name, such as "torch", not {backend!r}')
    if gradient is None:
        return
    if backend is not None:
        raise ValueError("give gradient= or backend=: a backend takes gradients its own way")
    if not callable(gradient):
        raise TypeError(f"gradient= is a function of (grads, inputs, outputs), not {gradient!r}")
    if operator.backward is Operator.backward:
        raise ValueError(f"{operator.__name__} has no gradient: leave gradient= out")


def _require_keywords(function: Any, operator: type[Operator]) -> None:
    """Raise unless the function takes the attributes, which are drawn for a class."""
    __tracebackhide__ = True
    try:
        taken = signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, and says nothing of itself
        return
    missing = {field.name for field in fields(operator)} - {p.name for p in taken}
    if missing and not any(p.kind is Parameter.VAR_KEYWORD for p in taken):
        raise TypeError(
            f"like={operator.__name__} is a class, whose attributes are drawn: the function has "
            f"to take {', '.join(sorted(missing))} as keyword arguments. To check it with fixed "
            f"ones, give like={operator.__name__}()"
        )


def _tested(backend: str | None, device: str, gradient: Function | None) -> Any:
    """The backend that makes tensors and takes gradients: NumPy with the function's own, if none
    is named. Raises `ValueError` for a device that it has not.
    """
    if backend is None:
        if device != "cpu":
            raise ValueError(f"device={device!r} is a framework's: {OF_A_FRAMEWORK}")
        return Functions(gradient)
    kind = in_this_process(backend)
    if not kind.has(device):
        there = ", ".join(kind.devices())
        raise ValueError(f"{backend} has no device {device!r} here; there are: {there}")
    return kind(device)


def _client(
    function: Function,
    like: Operator | type[Operator],
    tested: Any,
    outputs: int | None,
    dtypes: tuple[str, ...],
    arithmetic: str = "S",
) -> OneFunction:
    """The function in the place of the backend's row, with what that row is granted."""
    drawn = isinstance(like, type)
    operator = like if isinstance(like, type) else type(like)

    def call(op: Any, *inputs: Any) -> Any:
        try:
            return function(*inputs, **(op.attributes if drawn else {}))
        except TypeError as error:
            if not _miscalled(error, function):
                raise
            text = f"{error}; it is called with {_inputs(operator)}"
            raise TypeError(text).with_traceback(error.__traceback__) from None

    rows: Mapping[str, Row] = tested.rows
    if isinstance(tested, Functions):
        rows, call = {}, tested.row(call)
    granted = rows.get(operator.__name__, Row(call, gradient=getattr(tested, "refused", "")))
    if issubclass(operator, Described):  # no row is its own, whatever it is called
        granted = Row(
            call,
            gradient=granted.gradient,
            stopped=operator.constant,
            ulps=_grants(rows.values(), operator.called),
        )
    row = replace(
        granted,
        call=call,
        outputs=granted.outputs if outputs is None else outputs,
        arithmetic=arithmetic,
        dtypes=dtypes,
        rounded_attributes=not drawn,
        values=(),
    )
    tested.rows = {**rows, operator.__name__: row}
    advice = Advice(
        unreadable="what it returned cannot be read",
        refusing="if its documentation excludes such inputs, raise d5test.Unsupported",
        given=f"NumPy arrays; {OF_A_FRAMEWORK}" if isinstance(tested, Functions) else "",
        stopped="",
        flushes="",
        rounded=f"; like={operator.__name__}(...) with fixed attributes allows that",
    )
    return OneFunction(f"{name_of(function)} with {tested.framework}", tested, advice)


def _grants(rows: Iterable[Row], called: frozenset[str]) -> dict[str, float]:
    """What rows of a framework are granted whose elementary functions a formula calls, too."""
    granted: dict[str, float] = {}
    for row in rows:
        if called & row.ulps.keys() - {"add", "subtract"}:  # these go with the row's function
            for name, ulps in row.ulps.items():
                granted[name] = max(ulps, granted.get(name, 0.0))
    return granted


def _miscalled(error: TypeError, function: Function) -> bool:
    """Whether Python did not call it with so many inputs, or not a method of it, as `forward`."""
    if not MISCALLED.search(str(error)):
        return False
    called = [frame.f_code.co_qualname for frame, _ in walk_tb(error.__traceback__)][1:]
    own = f"{type(function).__qualname__}."
    return not called or (
        str(error).startswith(own) and not any(name.startswith(own) for name in called)
    )


def _inputs(operator: type[Operator]) -> str:
    """What a function that is like an operator is called with, in words."""
    if issubclass(operator, Described):
        return f"the inputs of the formula, ({', '.join(operator.parameters)})"
    form = signature(operator.forward)
    _, *inputs = form.parameters.values()
    absent = ": one that is absent is None, or left out at the end"
    optional = any(x.default is None for x in inputs)
    written = form.replace(parameters=inputs)
    return f"the inputs of {operator.__name__}, {written}{absent if optional else ''}"


def name_of(function: Function) -> str:
    """A function as its author knows it: `softmax`, `Tanh.apply`, `the lambda at test_a.py:12`."""
    if isinstance(function, partial):
        return f"partial({name_of(function.func)})"
    if isinstance(function, MethodType):
        owner = function.__self__
        return (
            f"{_local_name(owner if isinstance(owner, type) else type(owner))}.{function.__name__}"
        )
    if isinstance(function, type):
        return _local_name(function)
    if not hasattr(function, "__name__"):
        return _local_name(type(function))
    plain = unwrap(function)  # of a decorator or a compiler
    if not isinstance(plain, FunctionType):
        return function.__name__
    if plain.__name__ == "<lambda>":
        code = plain.__code__
        return f"the lambda at {Path(code.co_filename).name}:{code.co_firstlineno}"
    return _local_name(plain)


def _local_name(named: FunctionType | type) -> str:
    """With the class that it stands in, but without the function."""
    return named.__qualname__.rpartition("<locals>.")[2]


def _explore(
    client: OneFunction, name: str, like: Any, dtype: str, examples: int, seed: int
) -> None:
    __tracebackhide__ = True
    operator = like if isinstance(like, type) else type(like)
    compiles = client.about.compiles_shapes
    tally = Tally(client.name, name, operator.__name__, dtype)
    exploration = Exploration(
        client=client,
        check=CHECKS[name],
        operator=like,
        dtype=dtype,
        tally=tally,
        examples=examples,
        covered=lambda _: False,
        data_sets=COMPILED if compiles else 1,
    )
    drawn = seed_of_cell(CHECKS[name], operator.__name__, dtype, seed, alike=compiles)
    assessment = Assessment(tally)
    with assessment.judging(like, client.name):
        exploration.assess(drawn, assessment)
    faults = sorted(assessment.faults, key=lambda fault: fault.kind == "exception")
    for fault in faults[1:]:  # an exception may follow from the others
        faults[0].add_note(f"and {fault.message}")
    if faults:
        raise faults[0].with_traceback(None) from None
    if left := exploration.left_fault(CHECKS):
        raise left from None
    if tally.left_to_others:
        text = "{wrong}, though no case that {check} drew has shown it: {case}"
        raise Untested(text.format_map(tally.left_to_others))
    if issubclass(operator, Described) and (shares := rarely_judged(tally.shares)):
        raise Untested(
            f"{operator.__name__} in {dtype}, {name}: on the average of {tally.right} cases only "
            f"{shares} could be judged: the formula's own bars accept anything there, or zeros. "
            f"{ELSE}"
        )
    conclusion = assessment.conclude(lambda fault: ("", ""))
    if conclusion.status != "passed":
        called = operator.__name__ if isinstance(like, type) else repr(like)
        wide = name == "low_precision" and client.about.rows[operator.__name__].arithmetic == "S"
        raise Untested(f"{called} in {dtype}, {name}: {conclusion.text}{TIGHTER * wide}")
