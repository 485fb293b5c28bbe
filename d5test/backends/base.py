"""What a backend must do.

A backend is one class in one module or package, which is the only place where its framework is
imported. It runs in a worker process, perhaps under another interpreter: this module and the
backend's own may import NumPy, the framework and what that brings, and nothing else.

    rows        operator name -> Row: the framework's own callable
    put, get    NumPy in and out
    wait        until the device has finished
    vjp         the framework's own automatic differentiation
    version, device, mode: what it is

`call(op, *inputs)` of a row gets the operator's attributes by their ONNX names (an optional one
that is not set is `None`; docs/operators.md lists them) and the framework's tensors (an absent
optional input is `None`), and returns a tensor or a tuple of them. It raises `Unsupported` with
the reason when the framework cannot do this one. A row that works something out of attributes and
shapes is `planned`: that is then done once for many calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

FLOATS = ("float64", "float32", "float16", "bfloat16")
UNDERIVED = "ONNX's schema calls it not differentiable"
"""Why a row has no gradient whose operator has none."""
DRAWN = "it draws by chance"
"""Likewise of one that makes random numbers."""
FAMILIES = (
    "comparison",
    "creation",
    "elementwise",
    "indexing",
    "linear",
    "logic",
    "movement",
    "normalisation",
    "optimizers",
    "quantisation",
    "random",
    "recurrent",
    "reductions",
    "sampling",
    "selection",
    "signal",
    "types",
    "windows",
)
"""The modules of a framework's package that have its rows."""

Plan = Callable[..., Any]
"""What is left of a row when it is planned: a function of the tensors alone."""
Function = Callable[..., Any]
Tensors = Sequence[Any]
"""The framework's own; `None` stands for an absent one."""
Pulled = tuple[tuple[Any, ...], list[Any]]
"""The outputs of a function, and gradients of its inputs."""
Pushed = tuple[tuple[Any, ...], list[Any]]
"""The outputs of a function, and how each moves."""


class Unsupported(Exception):
    """The framework has no such operator, attribute, dtype or layout; the text says which."""


@dataclass(frozen=True)
class Row:
    """How a backend computes one operator.

    native      the framework's own function; otherwise composed by us of several: judged, but
                never timed. Which functions a call uses is recorded when a fault is reported.
    outputs     how many of the reference's outputs it returns, from the first; `None`: all.
    arithmetic  the loosest class that is allowed for 16-bit dtypes: F, P or S.
    dtypes      the floating-point dtypes that the framework declares for it.
    gradient    empty, or the reason why there is no gradient.
    stopped     inputs (positions) for which the framework, by design, has no gradient.
    flushes     its own kernel makes zeros of results below the smallest normal number, though
                the backend elsewhere does not.
    ulps        ufuncs of the reference that the framework's own kernel is known to compute with a
                larger error than the common table grants; say where that was measured.
    rounded_attributes
                it does not get the operator's attributes but has values of its own, which are
                these to the 32 bits in which ONNX stores them.
    values      inputs (positions) whose values its plan reads, since they are arguments in the
                framework: a shape, axes, pads. A plan holds as long as they do.
    attributes  the values of attributes with which it is asked; of others, any.
    contract    the formula (of `d5test.reference.formulas`) that the framework documents, where it
                is another than ONNX's.
    propagates_nan
                the framework documents that a NaN reaches every result that depends on it, where
                ONNX leaves that open.
    out_of_range
                what the framework documents of an index out of range: `raises`, or its entry is
                `nan`, `zero`, `clamped` or `wrapped`; empty: any of these.
    source      the page that documents these three.
    where       conditions on the cases that it is asked, as on those of a known failure
                (docs/known.md).
    constants   of a form: inputs (positions) that it does not take, and the number that stands in
                each of their elements. They have no gradient.
    promotes    of a form: dtypes of integers and booleans of which it makes another dtype, as the
                framework documents.
    transformed of a form: it is the backend's own row under a transformation of the framework.
    """

    call: Callable[..., Any]
    native: bool = True
    outputs: int | None = None
    arithmetic: str = "P"
    dtypes: tuple[str, ...] = FLOATS
    gradient: str = ""
    stopped: tuple[int, ...] = ()
    flushes: bool = False
    ulps: Mapping[str, float] = field(default_factory=dict)
    rounded_attributes: bool = False
    values: tuple[int, ...] = ()
    contract: str = ""
    propagates_nan: bool = False
    out_of_range: tuple[str, ...] = ()
    source: str = ""
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[int, float] = field(default_factory=dict)
    promotes: tuple[str, ...] = ()
    transformed: bool = False

    def plan(self, op: Any, inputs: Sequence[Any]) -> Plan:
        """The function of the tensors, for all inputs like these.

        They are alike in shapes, dtypes, device and which of them are absent, and those at
        `values` are equal. The plan holds none of them.
        """
        if isinstance(self.call, planned):
            return self.call.plan(op, *inputs)
        return partial(self.call, op)


@dataclass(frozen=True)
class planned:  # noqa: N801 (a decorator)
    """The call of a row in two steps: `plan(op, *inputs)` returns the function of the tensors.

    >>> @rows.native("Transpose")
    ... @planned
    ... def transpose(op, x):
    ...     return partial(framework.transpose, axes=op.perm or range(x.ndim)[::-1])
    """

    plan: Callable[..., Plan]

    def __call__(self, op: Any, *inputs: Any) -> Any:
        """Both steps."""
        return self.plan(op, *inputs)(*inputs)


@dataclass(frozen=True)
class Template:
    """How the framework's users write a call: what short reproducers are made of.

    imports   statements
    tensor    a tensor of `{values}`, nested lists of numbers, in the dtype `{dtype}`
    array     the tensor `{y}` as NumPy reads it, in float64
    dtype     the name of its dtype
    gradient  statements that set `results` to the gradients of `{call}` with regard to `{inputs}`,
              whose upstream gradient is `dy`
    compiled  `{function}` in the backend's mode
    tangent   statements that set `results` to how `{call}` moves as `{inputs}` do by `{tangents}`
    second_gradient
              statements that set `results` to how those gradients move then
    """

    imports: str
    tensor: str
    array: str
    dtype: str
    gradient: str = ""
    compiled: str = ""
    tangent: str = ""
    second_gradient: str = ""


class Table(dict[str, Row]):
    """The rows of a backend, by operator name, filled by decorators.

    >>> rows = Table()
    >>> @rows.native("Relu")
    ... def relu(op, x): ...
    """

    @classmethod
    def of(cls, package: str, families: Sequence[str] = FAMILIES) -> Table:
        """The rows of these families of a framework's package."""
        modules = (import_module(f"{package}.{family}") for family in families)
        return cls({name: row for module in modules for name, row in module.rows.items()})

    def native(self, *names: str, **row: Any) -> Callable[[Callable[..., Any]], Any]:
        """A row that is the framework's own function."""
        return self._add(names, native=True, **row)

    def composed(self, *names: str, **row: Any) -> Callable[[Callable[..., Any]], Any]:
        """A row that is composed by us of several functions of the framework."""
        return self._add(names, native=False, **row)

    def elementwise(self, functions: Mapping[str, Callable[..., Any]], **row: Any) -> None:
        """Native rows of functions that take no attributes."""
        for name, function in functions.items():
            self[name] = Row(planned(Always(function)), native=True, **row)

    def _add(self, names: Sequence[str], **row: Any) -> Callable[[Callable[..., Any]], Any]:
        def add(call: Callable[..., Any]) -> Callable[..., Any]:
            for name in names:
                self[name] = Row(call, **row)
            return call

        return add


class Forms(dict[str, dict[str, Row]]):
    """Other ways in which a framework's users write an operator's call, by operator and name.

    A name says what is called, as users know it: `torch.mm`, `Tensor.relu_`, `torch.exp(out=)`.

    >>> forms = Forms()
    >>> @forms.add("MatMul", "framework.mm")
    ... def mm(op, a, b): ...
    """

    @classmethod
    def of(cls, package: str, modules: Sequence[str]) -> Forms:
        """The forms of these modules of a package."""
        forms = cls()
        for module in modules:
            forms = forms.merged(import_module(f"{package}.{module}").forms)
        return forms

    def merged(self, others: Mapping[str, Mapping[str, Row]]) -> Forms:
        """These forms, and others."""
        names = dict.fromkeys((*self, *others))
        return Forms({name: {**self.get(name, {}), **others.get(name, {})} for name in names})

    def add(self, operator: str, name: str, **row: Any) -> Callable[[Plan], Plan]:
        """Decorate a form's call, which is as a row's; `row` has the other fields of `Row`."""

        def enter(call: Plan) -> Plan:
            named = self.setdefault(operator, {})
            if name in named:
                raise ValueError(f"{operator} has the form {name} already")
            named[name] = Row(call, **row)
            return call

        return enter

    def same(self, operator: str, functions: Mapping[str, Plan], **row: Any) -> None:
        """Forms that are functions of the tensors alone."""
        for name, function in functions.items():
            self.add(operator, name, **row)(planned(Always(function)))


@dataclass(frozen=True)
class Always:
    """The plan of a function of tensors alone: itself."""

    function: Plan

    def __call__(self, op: Any, *inputs: Any) -> Plan:
        """The function."""
        return self.function


@dataclass(frozen=True)
class Tried:
    """The call of a form that may not be there: `Unsupported`, with what it raises."""

    call: Callable[..., Any]

    def __call__(self, op: Any, *inputs: Any) -> Any:
        """What the call returns."""
        try:
            return self.call(op, *inputs)
        except Exception as error:
            raise Unsupported(f"{type(error).__name__}: {error}") from error


class Backend(ABC):
    """A framework on one device in one mode. The class is made once in each worker process."""

    framework: ClassVar[str]
    """The name of the package, as `import` and `pip` know it."""
    mode: ClassVar[str] = "eager"
    """`eager`, whatever a call does inside: all checks are made. `compiled` or `xla`: a second
    class of the same rows, whose `compile` compiles; the check `compiled` is made of it alone."""
    rows: ClassVar[Mapping[str, Row]]
    forms: ClassVar[Mapping[str, Mapping[str, Row]]] = {}
    """Other calls of the framework that compute what a row does; see `Forms`."""
    offers: ClassVar[Mapping[str, str]] = {}
    """Modules and classes in which its users look for functions, by the names that they write:
    what of these nobody calls is told by `d5test coverage --functions`."""
    layouts: ClassVar[tuple[str, ...]] = ("contiguous",)
    """Memory layouts that `put` can make, among them `contiguous`. See `d5test.strategies`."""
    ulps: ClassVar[Mapping[str, float]] = {}
    """Elementary functions whose error is accepted to be larger than the common table's."""
    compiles_shapes: ClassVar[bool] = False
    """Whether each new shape is compiled, which takes far longer than the call itself: then the
    checks of an operator draw the same shapes, and judge each on several sets of data."""
    compiles_quickly: ClassVar[bool] = False
    """Of a compiled mode: whether a function of one operator is compiled in a few tenths of a
    second, so that more than three cases of each operator are affordable."""
    default_device: ClassVar[str] = "cpu"
    """Where it computes without `--device`."""

    mutable: ClassVar[bool] = False
    """Whether tensors can be written to, so that `refill` works."""
    updaters: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """Optimizers at work, see `d5test.backends.updater`: the framework's own, `native`, the
    `reference` rules on its tensors, and the framework's other implementations."""

    template: ClassVar[Template | None] = None
    """How its users write a call; without it no reproducer is short."""

    sources: ClassVar[Mapping[str, str]] = {}
    """The files of rows that are no framework's but a user's own, by operator."""

    libraries: ClassVar[tuple[str, ...]] = ()
    """Parts of the paths of the native libraries that compute, `/jaxlib/`; none: those in the
    framework's package."""

    reads_models: ClassVar[bool] = False
    """Whether a network is an ONNX model that the framework reads itself: `prepare` works. Without
    it, a network is composed of rows."""

    opset: int = 0
    """The newest operator set of those models; 0: none is known."""

    implementation: ClassVar[str] = ""
    """Of ONNX, see `d5test.backends.onnx`: its module, or `module:Class`."""

    ordered: ClassVar[bool] = True
    """Whether to wait for one result is to wait for all that were asked for before it. Where not
    (a lazy framework, queues that overtake each other), each timed call is waited for."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Ask the rows with which a subclass replaces others under transformations in their place.

        Nobody says that they can be transformed: an exception is no fault of theirs.
        """
        super().__init_subclass__(**arguments)
        parent: Any = super(cls, cls)
        replaced = getattr(parent, "rows", None)
        if replaced is None or "rows" not in vars(cls):
            return
        own = {name: row for name, row in cls.rows.items() if row is not replaced.get(name)}
        forms = Forms(parent.forms).merged(
            {
                operator: {name: replace(row, call=Tried(row.call)) for name, row in named.items()}
                for operator, named in cls.transformed(own).items()
            }
        )
        cls.forms = forms.merged(
            {
                operator: {
                    name: row
                    for name, row in named.items()
                    if row is not parent.forms.get(operator, {}).get(name)
                }
                for operator, named in cls.forms.items()
            }
        )

    def __init__(self, device: str = "cpu") -> None:
        """Raises `Unsupported` for a device that is not here."""
        known = self.devices()
        if device not in known and f"{device}:0" not in known:
            there = ", ".join(known)
            raise Unsupported(f"{self.framework} has no device {device!r} here, only {there}")
        self.device = device

    def allow_tf32(self) -> None:  # noqa: B027 (not every framework has a device with TF32)
        """Let float32 multiplications run in TF32 where the device can. Otherwise they do not."""

    @classmethod
    def transformed(cls, rows: Mapping[str, Row]) -> Forms:  # noqa: ARG003 (for subclasses)
        """These rows under the framework's transformations, as users have them of any function."""
        return Forms()

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        """The devices that can be used now."""
        return ("cpu",)

    @classmethod
    def has(cls, device: str) -> bool:
        """Whether a device, or the first of a kind, as in `cuda`, is one of `devices`."""
        there = cls.devices()
        return device in (*there, *(name.partition(":")[0] for name in there))

    def row_for(self, operator: str, form: str = "") -> Row:
        """The row of an operator, or one of its forms. Raises `Unsupported`."""
        rows = self.forms.get(operator, {}) if form else self.rows
        if (form or operator) not in rows:
            by = f" by {form}" if form else ""
            raise Unsupported(f"{self.framework} has no row for {operator}{by}")
        return rows[form or operator]

    @property
    @abstractmethod
    def version(self) -> str:
        """The framework's version."""

    @abstractmethod
    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        """A tensor on the device with these values. `bfloat16` arrives as its bits in uint16.

        So do floating-point formats of 8 bits, in uint8.
        """

    @abstractmethod
    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        """The values as a NumPy array of their own, and the dtype; `bfloat16` leaves as uint16."""

    @abstractmethod
    def wait(self, tensors: Sequence[Any]) -> None:
        """Return when the device has computed `tensors`, and whatever else was asked of it."""

    def wait_to_read(self, tensors: Sequence[Any]) -> None:
        """Return when `tensors` may be read, as whoever called would read them.

        Where a device has streams, the caller's alone is waited for: what a function leaves on
        another stream may not be done, and is not waited for by anybody else either.
        """
        self.wait(tensors)

    @abstractmethod
    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        """Outputs of `function(*inputs)` and the gradients of the inputs at `wanted`.

        `grads` are the upstream gradients, one for each output that the function returns; `None`
        for one through which nothing flows. A gradient is `None` if the framework has none.
        """

    def vjp_again(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        """As `vjp`, but the gradients of a second backward pass through the same graph.

        Raises `Unsupported` where a graph lasts for one.
        """
        raise Unsupported(f"{self.framework} goes back through a graph once")

    def jvp(self, function: Function, inputs: Tensors, tangents: Tensors) -> Pushed:
        """Outputs of `function(*inputs)` and how each moves while the inputs do: forward mode.

        `tangents` has one for each input, `None` for one that does not move. How an output moves
        is `None` where the framework says that it does not. Raises `Unsupported` where it has no
        forward mode.
        """
        raise Unsupported(f"{self.framework} has no forward mode here")

    def hvp(
        self,
        function: Function,
        inputs: Tensors,
        grads: Tensors,
        tangents: Tensors,
        wanted: Sequence[int],
    ) -> Pulled:
        """As `vjp`, but how those gradients move while the inputs do: second derivatives.

        With phi = <grads, function(*inputs)>, the product of the Hessian of phi and `tangents`.
        Raises `Unsupported` where the framework differentiates once only.
        """
        raise Unsupported(f"{self.framework} has no second derivatives here")

    def kernel_names(self, function: Function, inputs: Tensors) -> tuple[str, ...]:
        """What runs in `function(*inputs)`, in the framework's own names, each once, in order.

        For a record, to be read beside a time: by means that cost little more than a call. Empty
        where there are none.
        """
        return ()

    def prepare(self, model: bytes) -> Callable[..., Sequence[Any]]:
        """The function of the inputs of a serialised ONNX model (only if `reads_models`)."""
        raise NotImplementedError

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function in this backend's mode; compiled modes override it."""
        return function

    def compilations(self) -> int | None:
        """How many compilations have happened so far; `None` where the mode compiles nothing."""
        return None

    def reset(self) -> None:  # noqa: B027 (an eager mode has nothing to forget)
        """Forget what was compiled."""

    def refusal(self, error: Exception) -> str:
        """The reason, if `error` is the framework's way of saying that it does not have this.

        Empty if it is an error as any other: a missing kernel is unsupported, not a fault.
        """
        return ""

    def nondeterministic(self, operator: str, what: str) -> str:
        """Why the same call may give other bits here, as the framework documents; else empty.

        what  `outputs` or `gradients`, of this operator
        """
        return ""

    def lost(self, error: Exception) -> bool:
        """Whether the device answers nothing any more, as a GPU after an illegal address.

        The worker is then replaced.
        """
        return False

    def refill(self, tensor: Any, array: NDArray[Any], dtype: str) -> None:
        """Overwrite a tensor in place, at the same address (only if `mutable`)."""
        raise NotImplementedError

    def peak_memory(self) -> int | None:
        """Bytes of device memory used at most since the last call, if the device counts them."""
        return None

    def threads(self) -> int | None:
        """Threads that the framework computes with; `None`: what its libraries' pools say.

        A number that was asked for stands in OMP_NUM_THREADS before the framework is imported.
        """
        return None

    def describe_device(self) -> str:
        """The device in words: a GPU's name, say."""
        return self.device


def sample_axes(
    row: Row, inputs: Sequence[Any], varied: bool
) -> tuple[tuple[int | None, ...], int]:
    """Along which axis of each input, and of the results, the samples of a batched call lie.

    The first of all that are no arguments and no whole numbers, unless all are such. Where they
    are `varied`, the second or the last; or one of these, or the first, of one input alone,
    indices and conditions included; or the first of one and another of the next. None: the samples
    share the input. Which of these it is, the shapes alone decide: a case is always the same call.
    """
    own = [i for i, x in enumerate(inputs) if x is not None and i not in row.values]
    if not own:
        raise Unsupported("every input is an argument: there are no samples")
    floats = [i for i in own if "float" in str(inputs[i].dtype)] or own
    axes: list[int | None] = [0 if i in floats else None for i in range(len(inputs))]
    if not varied:
        return tuple(axes), 0
    turn = crc32(repr([() if x is None else tuple(x.shape) for x in inputs]).encode())
    alone = [i for i in own if i in floats or inputs[i].ndim]
    which = turn % (len(alone) + 2) if len(alone) > 1 else len(alone)
    for place, i in enumerate(alone):
        last = inputs[i].ndim
        other = min(1, last) if turn >> 10 & 1 else last
        if which < len(alone):
            axes[i] = (0, other)[turn >> 8 & 1] if place == which else None
        else:
            axes[i] = other if which == len(alone) or place % 2 else 0
    return tuple(axes), (0, -1)[turn >> 9 & 1]


def padded(inputs: Sequence[Any], n: int) -> list[Any]:
    """As many inputs as an operator may have: absent ones at the end are `None`, too."""
    return [*inputs, *[None] * (n - len(inputs))]


@cache
def name_of(dtype: np.dtype[Any]) -> str:
    """The dtype's name, which NumPy puts together anew whenever it is asked (2 microseconds)."""
    return dtype.name


def bits(array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """An array and its dtype's name as they travel: what is ml_dtypes', in unsigned integers."""
    dtype = array.dtype
    return (array.view(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else array), name_of(dtype)


def from_bits(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The array that travels as `bits`: what is ml_dtypes', in its dtype."""
    if array.dtype.kind != "u" or name_of(array.dtype) == dtype:
        return array
    import ml_dtypes  # not needed otherwise: torch comes without it

    return array.view(getattr(ml_dtypes, dtype))
