"""What a backend is asked and what it answers: feeds, results, rounds, facts, failures."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from d5test.backends.base import Template, Unsupported, name_of
from d5test.case import Array, Arrays, Case, Operator, dtype_of
from d5test.worker.wire import Bits


@dataclass(frozen=True)
class Feed:
    """Inputs of one run of an operator, upstream gradients if its gradient is asked for too.

    `layouts` has a layout for each input, `same_as` an earlier position for an input that is the
    same tensor; absent: all contiguous, all different. `grad_layout` is that of the upstream
    gradients. `tangents` say how each input moves, `None` of one that does not: then it is asked
    how the outputs move (forward mode), or with upstream gradients how the gradients do. `op` is
    that of an earlier call, where its attributes were others. `again`: the gradients are those of
    a second backward pass through the same graph.
    """

    inputs: Arrays
    grads: Arrays | None = None
    layouts: tuple[str, ...] | None = None
    same_as: tuple[int | None, ...] | None = None
    grad_layout: str = "contiguous"
    tangents: Arrays | None = None
    op: Any = None
    again: bool = False


@dataclass(frozen=True)
class Result:
    """What a backend made of one feed. All arrays are read-only.

    `gradients` has an entry for each input, `None` where none was wanted or the framework has
    none; a tensor that is passed twice has its whole gradient at its first position. Of a feed
    with tangents it is how the gradients move, or without upstream gradients how each output does.
    `inputs_after`, `grads_after`: read again after the run. `late`: the outputs read again after
    the last feed. One that did not change is the very array that it was before.
    """

    outputs: tuple[Array, ...]
    gradients: Arrays | None
    inputs_after: Arrays
    grads_after: Arrays | None
    late: tuple[Array, ...]

    @classmethod
    def of(cls, feed: Feed, answer: Any) -> Self:
        """The worker's answer, `True` replaced by what it stands for."""
        outputs, gradients, inputs, grads, late = answer
        return cls(
            tuple(outputs),
            None if gradients is None else tuple(gradients),
            _restored(inputs, feed.inputs),
            None if grads is None else _restored(grads, feed.grads or ()),
            _restored(late, tuple(outputs)),
        )


def same(before: Any, after: Any) -> bool:
    """Whether arrays are bit for bit the same, NaNs too."""
    return all(
        a is b or a is None or b is None or (a.shape == b.shape and a.tobytes() == b.tobytes())
        for a, b in zip(before, after, strict=True)
    ) and [x is None for x in before] == [x is None for x in after]


class Extremes(NamedTuple):
    """Of a large result its shape and dtype; of its repetitions, by element, lowest and highest.

    Of 16-bit numbers these are in float32.
    """

    shape: tuple[int, ...]
    dtype: str
    lowest: Array | None
    highest: Array | None


class Round(NamedTuple):
    """Seconds a call, by the clock and of the CPU (all threads), and involuntary switches."""

    wall: float
    cpu: float
    switches: int


@dataclass(frozen=True)
class Timed:
    """What the timed calls returned, the last call of each feed; peak memory in bytes; kernels."""

    outputs: tuple[tuple[Array, ...], ...]
    gradients: tuple[Arrays, ...] | None
    device_memory: int | None
    resident_memory: int
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowInfo:
    """A row of the backend's table; see `d5test.backends.base.Row`.

    call       source text that calls it, on `OP` and `inputs`; empty where it has none
    functions  what that uses: the file, the module and the name of each function
    modules    the framework's modules that it uses
    made       statements that make functions which no module names: the file, the module and the
               text of each
    ours       whether it calls what it does in a backend of d5test's, and is no user's own
    """

    native: bool
    outputs: int | None
    arithmetic: str
    dtypes: tuple[str, ...]
    gradient: str
    stopped: tuple[int, ...] = ()
    flushes: bool = False
    ulps: Mapping[str, float] = field(default_factory=dict)
    rounded_attributes: bool = False
    call: str = ""
    functions: tuple[tuple[str, str, str], ...] = ()
    modules: tuple[str, ...] = ()
    made: tuple[tuple[str, str, str], ...] = ()
    contract: str = ""
    propagates_nan: bool = False
    out_of_range: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, float] = field(default_factory=dict)
    promotes: tuple[str, ...] = ()
    transformed: bool = False
    ours: bool = True


@dataclass(frozen=True)
class BackendInfo:
    """What a backend is. `flushes`: by dtype, whether results below the normal range are zero.

    `libraries`: those with threads of their own (BLAS, OpenMP) that its process has loaded.
    `sources`: the files of operators that are no framework's but a user's own, by name.
    `forms`: other calls that compute what a row does, by operator and name.
    `derivatives`: which of `jvp`, `hvp` and `vjp_again` it has.
    `nondeterministic`: why the same call may give other bits, by its documentation, else empty:
    by operator, of its `outputs` and its `gradients`.
    `opset`: the newest operator set of the ONNX models that it reads; 0: it reads none.
    `base`: the installed backend that it is, or whose subclass in the same mode it is; else empty.
    `updaters`: the kinds of optimizers that it has.
    """

    name: str
    framework: str
    version: str
    device: str
    device_name: str
    mode: str
    rows: Mapping[str, RowInfo]
    layouts: tuple[str, ...]
    ulps: Mapping[str, float]
    flushes: Mapping[str, bool]
    compiles_shapes: bool
    mutable: bool
    reads_models: bool
    threads: int
    packages: Mapping[str, str]
    libraries: tuple[str, ...]
    python: str
    executable: str
    pid: int
    sources: Mapping[str, str] = field(default_factory=dict)
    template: Template | None = None
    implementation: str = ""
    opset: int = 0
    forms: Mapping[str, Mapping[str, RowInfo]] = field(default_factory=dict)
    derivatives: tuple[str, ...] = ()
    nondeterministic: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    base: str = ""
    updaters: tuple[str, ...] = ()
    compiles_quickly: bool = False

    @classmethod
    def of(cls, name: str, answer: dict[str, Any]) -> Self:
        """The worker's answer to `describe`, under the name that the backend was asked for by."""
        rows = {key: RowInfo(*row) for key, row in answer["rows"].items()}
        forms = {
            operator: MappingProxyType({key: RowInfo(*row) for key, row in named.items()})
            for operator, named in answer["forms"].items()
        }
        template = answer["template"] and Template(*answer["template"])
        facts = {**answer, "name": name, "rows": rows, "forms": forms, "template": template}
        frozen: dict[str, Any] = {
            k: MappingProxyType(v) if isinstance(v, dict) else v for k, v in facts.items()
        }
        return cls(**frozen)

    def row_of(self, case: Case) -> RowInfo:
        """The row that computes a case: a form's, if the case names one."""
        name = case.op.name
        return self.forms[name][case.form] if case.form else self.rows[name]


MISTAKES = (
    "AttributeError",
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
)
"""Exceptions of code that is wrong for any inputs."""


@dataclass(frozen=True)
class Advice:
    """What a message says to whoever wrote what was called: if nothing else, a row of a backend.

    unreadable  what is wrong where something is returned that is no tensor
    refusing    what to do where an exception is right
    given       what the inputs are, where they may be taken for something else
    stopped     how inputs without a gradient are declared: those at `{}`
    flushes     how zeros in place of subnormal numbers are declared
    rounded     how attributes that are known to 32 bits are declared
    looser      how a looser class of arithmetic, `{0}`, is declared
    fewer       how `{}` results, the first of all, are declared
    """

    unreadable: str = "the backend's row is wrong"
    refusing: str = (
        "if the framework documents this limit, raise Unsupported in the row, leave the dtype out "
        "of its dtypes=, or have the backend's refusal(error) know these words"
    )
    given: str = ""
    stopped: str = "; stopped={} in the row says that the framework has none"
    flushes: str = (
        "; flushes=True in the row allows that, if the framework documents that it flushes "
        "subnormal numbers (an intermediate that overflows gives zero, too)"
    )
    rounded: str = "; rounded_attributes=True in the row says so"
    looser: str = '; arithmetic="{0}" in the row allows {0}'
    fewer: str = ", or outputs={} if these are the first of them"

    def on(self, exception: str) -> dict[str, str]:
        """The details that say what to do about an exception of this type."""
        quiet = exception in MISTAKES or not self.refusing
        details = {} if quiet else {"refused": self.refusing}
        if self.given and exception in ("TypeError", "AttributeError"):
            details["given"] = self.given
        return details


TO_A_ROW = Advice()
"""To the author of a row."""


@dataclass(frozen=True)
class Calls:
    """Which functions of the framework a row calls; see `d5test.worker.recorder.record`.

    fatal  the one in which the process died or hung; then `source` is that of its call
    """

    names: tuple[str, ...] = ()
    one: bool = False
    moving: bool = False
    complete: bool = False
    source: str = ""
    tensors: tuple[tuple[Array, int | None], ...] = ()
    outputs: str = ""
    modules: tuple[str, ...] = ()
    fatal: str = ""


class Refused(Unsupported):
    """The framework raised something that means so; other reasons are the row's own."""


class UnknownBackend(ValueError):
    """No backend is meant by this name; the text says which there are."""


@dataclass(eq=False, repr=False)
class BackendFailed(Exception):
    """The backend cannot be used at all: it cannot be imported, or died while it was.

    `reason` is one line, `detail` the traceback or what the process printed last; `kind` names the
    exception that its import ended with.
    """

    reason: str
    detail: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False, repr=False)
class Raised(Exception):
    """The framework raised. `where`: call, vjp, put, get, wait, ...; or row: returned nonsense; or
    fit: an output has not the shape of its upstream gradient, and was not differentiated.

    `place` is the line, `FILE:LINE`, if it is the backend's own code that raised; of nonsense the
    method that returned it, if the row was not called alone: vjp, jvp or hvp.
    """

    type: str
    message: str
    traceback: str = ""
    where: str = "call"
    place: str = ""

    def __str__(self) -> str:
        place = f" in {self.where}" if self.where else ""
        return f"{self.type}{place}: {self.message}"


@dataclass(eq=False, repr=False)
class Crashed(Exception):
    """The worker ended in the middle of a request. `how` says how, `tail` what it printed last."""

    how: str
    tail: str = ""

    def __str__(self) -> str:
        return f"the process ended: {self.how}\n{self.tail}".rstrip()


@dataclass(eq=False, repr=False)
class Hung(Exception):
    """No answer in time: the worker was ended. `stack` is where its threads were, in Python.

    again  whether it had less time than usual, since the operator had not answered before
    """

    seconds: float
    stack: str = ""
    again: bool = False

    def __str__(self) -> str:
        why = ", less than usual: another case of it had not answered" if self.again else ""
        return f"no answer within {self.seconds:.3g} s{why}\n{self.stack}".rstrip()


FAILURES = (Crashed, Hung, Raised, BackendFailed)
"""How a backend ends a request without an answer."""


def typed(bits: Bits) -> Array:
    """An array that arrived, in the dtype that its bits stand for."""
    array, name = bits
    return array if name_of(array.dtype) == name else array.view(dtype_of(name))


def plain(op: Operator) -> tuple[str, dict[str, Any]]:
    """An operator as it travels: its name, and all its attributes as builtins and arrays."""
    return op.name, {f.name: _builtin(getattr(op, f.name)) for f in fields(op)}


def plain_feed(feed: Feed) -> tuple[Any, ...]:
    """A feed as it travels."""
    return (
        feed.inputs, feed.grads, feed.layouts, feed.same_as, feed.grad_layout, feed.tangents,
        feed.again,
    )  # fmt: skip


def _builtin(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return tuple(_builtin(v) for v in value)
    return value


def _restored(answers: Any, arrays: Arrays) -> tuple[Any, ...]:
    return tuple(was if now is True else now for now, was in zip(answers, arrays, strict=True))
