"""What is copied into reproducers, as far as they use it, and called by nobody else.

What is done before a framework is imported, by Python's library alone; the calls and what they
return, what is claimed of that, and the verdict. NumPy and Python 3.10 alone. Exit status 2 if the
fault cannot be tried at all, a missing framework among the reasons; a crash or a hang is an
answer. A backend is what `d5test.backends.base` says; an array travels as the array and its
dtype's name, bfloat16 as its bits in uint16. A claim returns in words what is wrong: none if
nothing is.
"""

import base64
import faulthandler
import importlib
import importlib.metadata
import os
import subprocess
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from functools import cached_property
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from d5test.backends.base import bits
from d5test.numerics.rounding import SHARE, between, ways
from d5test.worker.machine import poison

LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
}
SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SECONDS = 60
"""After this long without an answer it hangs."""
PATIENCE = 5
"""Seconds that a call is repeated for before it is said to give the same each time."""


def unable(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Whatever is raised unexpectedly: the fault cannot be tried, which is exit status 2."""
    if not isinstance(error, ImportError):
        traceback.print_exception(kind, error, trace)
    print(f"cannot be tried: {kind.__name__}: {error}", flush=True)
    os._exit(2)


def watched() -> None:
    """Go on in a process of its own, whose end is the answer."""
    if "--child" in sys.argv:
        faulthandler.enable()
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        return
    status = subprocess.run([sys.executable, os.path.abspath(__file__), "--child"]).returncode
    if status == 1:
        print(f"still there, if nothing was said above: no answer within {SECONDS} seconds")
    elif status not in (0, 2):
        print(f"still there: the process died with status {status}")
        status = 1
    sys.exit(status)


def array(dtype: str, values: Any) -> tuple[Any, str]:
    """These values in a dtype, and its name; bfloat16 and formats of 8 bits as their bits."""
    if dtype.startswith("float8"):
        import ml_dtypes

        return np.array(values, getattr(ml_dtypes, dtype)).view(np.uint8), dtype
    if dtype == "bfloat16":
        return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16), dtype
    return np.array(values, dtype), dtype


def unpacked(dtype: str, shape: tuple[int, ...], text: str) -> Any:
    """An array from its bytes, compressed, in base 64."""
    content = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(content, dtype).reshape(shape).copy()


class Op(SimpleNamespace):
    """An operator as a row sees it; what is compiled may be kept by it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def with_(self, **attributes: Any) -> Any:
        """The same operator with other attributes."""
        return Op(**{**vars(self), **attributes})


class Call(NamedTuple):
    """The inputs of one call, and upstream gradients with the positions that are differentiated.

    An input that is the same tensor as an earlier one has that one's position in `same_as`. With
    `tangents`, how each input moves, it is asked how the gradients move, or else the outputs. `op`
    has other attributes than `OP`. `again`: by a second backward pass.
    """

    inputs: Any
    grads: Any = ()
    wanted: Any = ()
    memory: Any = ()
    same_as: Any = ()
    grad_memory: str = "contiguous"
    tangents: Any = ()
    op: Any = None
    again: bool = False


class Answer(NamedTuple):
    """What a call returned, as arrays and as tensors, and its inputs' tensors."""

    tensors: Any
    outputs: Any
    kept: Any
    gradients: Any
    upstream: Any


class BadResult(Exception):
    """A call returned what no call may return."""


def answers(
    backend: Any, calls: Any, run: Callable[..., Any], place: Any, most: Any = None
) -> list[Answer]:
    """What all calls return: inputs placed by `place`, outputs and gradients by `run`.

    Raises `BadResult` for what is no tensor, and for more than `most` outputs.
    """
    poison()
    kind = type(backend.put(np.zeros(1, np.float32), "float32"))
    results: list[Answer] = []
    for call in calls:
        tensors = place(backend, call, results[-1].tensors if results else None)
        outputs, gradients, upstream = run(call, tensors)
        if most is not None and len(outputs) > most:
            raise BadResult(f"{len(outputs)} outputs, at most {most} are known")
        if upstream and len(gradients) != len(call.wanted):
            raise BadResult(f"{len(gradients)} gradients, want {len(call.wanted)}")
        for y in (*outputs, *(dx for dx in gradients if dx is not None)):
            if not isinstance(y, kind):
                raise BadResult(f"{type(y).__name__} was returned, not {kind.__name__}")
        backend.wait_to_read([t for t in (*outputs, *gradients) if t is not None])
        read = [backend.get(y) for y in outputs]
        alike = [call.inputs[i] for i in call.wanted] if upstream else read
        slopes = [
            (np.zeros_like(like[0]), like[1]) if dx is None else backend.get(dx)
            for like, dx in zip(alike, gradients, strict=False)
        ]
        results.append(Answer(tensors, read, outputs, slopes, upstream))
    return results


def anew(backend: Any, call: Call, before: Any) -> list[Any]:
    """The inputs of a call on the device, in tensors of their own."""
    tensors: list[Any] = []
    for pair, memory, same in zip_longest(call.inputs, call.memory, call.same_as):
        if same is not None:
            tensors.append(tensors[same])
        elif pair is None:
            tensors.append(None)
        else:
            tensors.append(backend.put(pair[0].copy(), pair[1], memory or "contiguous"))
    return tensors


def rewritten(backend: Any, call: Call, before: Any) -> list[Any]:
    """The inputs of a call, written over those of the call before."""
    if before is None or not backend.mutable:
        return anew(backend, call, before)
    for tensor, pair, same in zip_longest(before, call.inputs, call.same_as):
        if pair is not None and same is None:
            backend.refill(tensor, pair[0].copy(), pair[1])
    return list(before)


def forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made that is not differentiated."""

    def run(call: Call, tensors: Any) -> Any:
        result = function(*tensors)
        return (tuple(result) if isinstance(result, (tuple, list)) else (result,)), (), ()

    return run


def of_each(make: Callable[..., Any], function_of: Callable[..., Any], op: Any) -> Any:
    """How each call is made, some of them with other attributes than `op`."""
    made: dict[Any, Any] = {}

    def run(call: Call, tensors: Any) -> Any:
        own = call.op or op
        if own not in made:
            made[own] = make(function_of(own))
        return made[own](call, tensors)

    return run


def differentiated(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made with its gradients. A tensor that is given twice is one variable."""

    def run(call: Call, tensors: Any) -> Any:
        if not call.grads:
            return forward(function)(call, tensors)
        return pulled_by(backend.vjp, backend, function, call, tensors)

    return run


def through_one_graph(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made whose gradients may be those of a second backward pass."""

    def run(call: Call, tensors: Any) -> Any:
        method = backend.vjp_again if call.again else backend.vjp
        return pulled_by(method, backend, function, call, tensors)

    return run


def pulled_by(method: Any, backend: Any, function: Any, call: Call, tensors: Any) -> Any:
    """What a method of the backend makes of a call, and the upstream gradients."""
    upstream = put_all(backend, call.grads, call.grad_memory)
    of_distinct, distinct = folded(function, call)
    outputs, gradients = method(
        of_distinct,
        [tensors[i] for i in distinct],
        upstream,
        [distinct.index(i) for i in call.wanted],
    )
    return outputs, gradients, upstream


def pushed(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made in forward mode."""

    def run(call: Call, tensors: Any) -> Any:
        moves = put_all(backend, call.tangents)
        of_distinct, distinct = folded(function, call)
        inputs, moving = ([each[i] for i in distinct] for each in (tensors, moves))
        return *backend.jvp(of_distinct, inputs, moving), ()

    return run


def twice(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made with its second derivatives."""

    def run(call: Call, tensors: Any) -> Any:
        upstream, moves = (put_all(backend, arrays) for arrays in (call.grads, call.tangents))
        of_distinct, distinct = folded(function, call)
        outputs, gradients = backend.hvp(
            of_distinct,
            [tensors[i] for i in distinct],
            upstream,
            [moves[i] for i in distinct],
            [distinct.index(i) for i in call.wanted],
        )
        return outputs, gradients, upstream

    return run


def put_all(backend: Any, arrays: Any, memory: str = "contiguous") -> list[Any]:
    """Tensors of these arrays, `None` of one that is absent."""
    return [None if x is None else backend.put(x[0].copy(), x[1], memory) for x in arrays]


def folded(function: Callable[..., Any], call: Call) -> tuple[Callable[..., Any], list[int]]:
    """The function of the distinct inputs only, and their positions."""
    pairs = enumerate(zip_longest(call.inputs, call.same_as))
    places = [i if same is None else same for i, (_, same) in pairs]
    distinct = sorted(set(places))
    if len(distinct) == len(places):
        return function, distinct
    return lambda *xs: function(*(xs[distinct.index(place)] for place in places)), distinct


class Want:
    """What is expected of a result: `value`, give or take `bar`."""

    def __init__(self, dtype: str, value: Any, bar: Any) -> None:
        self.dtype, self.value, self.bar = dtype, np.asarray(value), np.asarray(bar)


def within(results: list[Answer], expected: Any, outputs: bool = False) -> str:
    """What lies outside its bar: gradients if a call has them, else (or if told to) outputs."""
    all_wrong = []
    for k, (answer, wants) in enumerate(zip(results, expected, strict=False)):
        judged = answer.outputs if outputs or not answer.gradients else answer.gradients
        what = "output" if judged is answer.outputs else "gradient"
        if wants and len(judged) != len(wants):
            return f"call {k}: {len(judged)} {what}s, want {len(wants)}"
        for j, (got, want) in enumerate(zip(judged, wants, strict=False)):
            wrong = "" if want is None else difference(got[0], got[1], want)
            if wrong:
                all_wrong.append(f"call {k}, {what} {j}: {wrong}")
    return "; ".join(all_wrong)


def difference(got: Any, dtype: str, want: Want) -> str:
    """What is wrong with one array; empty if it is right. An infinite bar judges nothing."""
    if got.shape != want.value.shape:
        return f"shape {got.shape}, want {want.value.shape}"
    if dtype not in want.dtype.split(" or "):
        return f"dtype {dtype}, want {want.dtype}"
    whole = dtype.startswith(("int", "uint")) and want.value.dtype.kind in "iu"
    unequal = got != want.value  # of integers exactly, which float64 is not beyond 2^53
    shown, wanted = (got, want.value) if whole else (widened(got, dtype), want.value.astype(float))
    value, bar, got = want.value.astype(float), want.bar, widened(got, dtype)
    largest = LARGEST.get(dtype, np.inf)
    with np.errstate(all="ignore"):
        infinite = np.isinf(got) & (np.sign(got) == np.sign(value))
        near = (np.abs(got - value) <= bar) & ((bar > 0) | ~np.bool_(whole))
        wrong = ~near & (unequal if whole else got != value)
        wrong &= ~(infinite & (np.abs(value) + bar > largest))
        beyond = largest * (1 + ROUNDOFF.get(dtype, 0.0))
        wrong |= (np.abs(value) - bar > beyond) & ~infinite
        wrong &= ~np.isnan(value)
        wrong |= np.isnan(value) & (bar == 0) & ~np.isnan(got)
    wrong &= np.isfinite(bar)
    if not wrong.any():
        return ""
    with np.errstate(all="ignore"):
        excess = np.where(np.isfinite(got), np.abs(got - value) / bar, np.inf)
    at = np.unravel_index(np.where(wrong, excess, -1.0).argmax(), wrong.shape)
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong, worst at {[*map(int, at)]}: "
        f"{shown[at].item()!r}, want {wanted[at].item()!r} give or take {float(bar[at]):.3g}"
    )


def shaped(results: list[Answer], calls: Any) -> str:
    """Which gradient has another shape than its input."""
    for k, (answer, call) in enumerate(zip(results, calls, strict=False)):
        for i, (dx, _) in zip(call.wanted, answer.gradients, strict=False):
            if dx.shape != call.inputs[i][0].shape:
                return f"call {k}, gradient of input {i}: shape {dx.shape}"
    return ""


def signed(results: list[Answer], expected: Any) -> str:
    """Which zero has the wrong sign, where a bar of 0 says that it is exact."""
    for k, (answer, wants) in enumerate(zip(results, expected, strict=False)):
        for j, ((values, dtype), want) in enumerate(zip(answer.outputs, wants, strict=False)):
            got = widened(values, dtype)
            wrong = (got == 0) & (want.value == 0) & (want.bar == 0)
            wrong &= np.signbit(got) != np.signbit(want.value)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                return (
                    f"call {k}, output {j}: {float(got[at])!r} at {list(at)}, want the other zero"
                )
    return ""


def rounded(results: list[Answer], expected: Any) -> str:
    """In which direction everything is rounded, if it is not to nearest."""
    (answer,), (wants,) = results, expected
    for j, ((values, dtype), want) in enumerate(zip(answer.outputs, wants, strict=False)):
        if want is None or dtype not in SMALLEST:
            continue
        value, bar = want.value.ravel(), want.bar.ravel()
        limits = -int(np.log2(ROUNDOFF[dtype])), SMALLEST[dtype], LARGEST[dtype]
        exact, above, step = between(value, bar, widened(values, dtype).ravel(), *limits)
        for name, _, against, went in ways(exact, above, step):
            sorts = [went[sort] for sort in (against, ~against) if sort.any()]
            if against.any() and all(sort.mean() >= SHARE for sort in sorts):
                return (
                    f"output {j}: {int(sorts[0].sum())} of {sorts[0].size} elements went {name} "
                    "that rounding to nearest takes the other way"
                )
    return ""


def widened(values: Any, dtype: str) -> Any:
    """In float64; from the bits of bfloat16 and of formats of 8 bits, too."""
    if dtype.startswith("float8"):
        import ml_dtypes

        values = values.view(getattr(ml_dtypes, dtype))
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def unlike(one: Any, other: Any) -> bool:
    """Whether two arrays differ in any bit."""
    if one is None or other is None:
        return one is not other
    same = one[1] == other[1] and one[0].shape == other[0].shape
    return not same or one[0].tobytes() != other[0].tobytes()


def repeated(run: Callable[[], list[Answer]], calls: Any) -> str:
    """What the same call gives otherwise than the first time, asked until it does."""
    until = time.monotonic() + PATIENCE
    first, *others = run()
    count, asked = 0, calls[1:]
    while True:
        for answer, call in zip(others, asked, strict=True):
            count += 1
            how = "by a second backward pass" if call.again else "with the same inputs"
            for what in ("outputs", "gradients"):
                one, other = getattr(first, what), getattr(answer, what)
                alike = zip(one, other, strict=False)
                if len(one) != len(other) or any(unlike(a, b) for a, b in alike):
                    return f"call {count}, {how}, gives other {what}"
        if time.monotonic() > until:
            return ""
        others, asked = run(), calls


def untouched(results: list[Answer], backend: Any, calls: Any) -> str:
    """Which input or upstream gradient is overwritten."""
    for k, (answer, call) in enumerate(zip(results, calls, strict=False)):
        for what, tensors, arrays in (
            ("input", answer.tensors, call.inputs),
            ("upstream gradient", answer.upstream, call.grads),
        ):
            for i, (tensor, before) in enumerate(zip(tensors, arrays, strict=False)):
                if before is not None and unlike(backend.get(tensor), before):
                    return f"call {k} overwrites its {what} {i}"
    return ""


def kept(results: list[Answer], backend: Any) -> str:
    """Which output a later call changes."""
    for k, answer in enumerate(results):
        for j, (tensor, before) in enumerate(zip(answer.kept, answer.outputs, strict=False)):
            if unlike(backend.get(tensor), before):
                return f"output {j} of call {k} is changed by a later call"
    return ""


def sloping(results: list[Answer], calls: Any, bar: float) -> str:
    """Whether the gradient of the first call disagrees with the rise between the other two."""
    at, ahead, behind = results
    slope = sum(
        float(np.sum(g[0] * (calls[1].inputs[i][0] - calls[2].inputs[i][0])))
        for i, g in zip(calls[0].wanted, at.gradients, strict=False)
    )
    rise = sum(
        float(np.sum(dy[0] * a[0])) - float(np.sum(dy[0] * b[0]))
        for dy, a, b in zip(calls[0].grads, ahead.outputs, behind.outputs, strict=False)
        if dy is not None
    )
    if abs(slope - rise) <= bar:
        return ""
    return f"the gradient promises a rise of {slope!r}, the forward has {rise!r} +- {bar:.3g}"


def raised(run: Callable[[], Any]) -> str:
    """The exception that these calls raise; empty if they return."""
    try:
        run()
    except Exception as error:
        if type(error).__name__ == "Unsupported":  # of d5test, or taken out of it
            raise
        traceback.print_exc()
        return f"raises {type(error).__name__}: {error}"
    return ""


def accepted(run: Callable[[], Any]) -> str:
    """Whether these calls return, where they should raise."""
    try:
        run()
    except Exception as error:
        if type(error).__name__ == "Unsupported":  # the row refuses, and not the framework
            raise
        print(f"refused: {type(error).__name__}: {error}")
        return ""
    return "accepted"


def uncompiled(backend: Any, run: Callable[[], Any]) -> str:
    """Whether these calls compile nothing."""
    run()
    return "" if backend.compilations() else "nothing was compiled"


def conclude(wrong: str, who: str) -> None:
    """Say it in one line, and in the exit status."""
    print(f"still there: {wrong} ({who})" if wrong else f"gone ({who})", flush=True)
    sys.exit(1 if wrong else 0)


class Session:
    """A model of one operator in ONNX Runtime. An absent input is no input of the model."""

    mutable = True

    def __init__(
        self, model: str, module: str = "onnxruntime", package: str = "onnxruntime"
    ) -> None:
        self.model = zlib.decompress(base64.b64decode(model))
        self.runtime, self.package = importlib.import_module(module), package

    @property
    def version(self) -> str:
        """The runtime's."""
        return importlib.metadata.version(self.package)

    @cached_property
    def run(self) -> Any:
        """A function of the inputs, made by the first call: to refuse the model is its answer."""
        providers = ["CPUExecutionProvider"]
        session = self.runtime.InferenceSession(self.model, providers=providers)
        names = [entry.name for entry in session.get_inputs()]
        return lambda arrays: session.run(None, dict(zip(names, arrays, strict=False)))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        return tuple(self.run([x for x in inputs if x is not None]))

    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        """A NumPy array."""
        if array.dtype.name == dtype:
            return np.array(array)
        import ml_dtypes

        return np.array(array).view(getattr(ml_dtypes, dtype))

    def refill(self, tensor: Any, array: Any, dtype: str) -> None:
        """Overwrite an array."""
        tensor[...] = self.put(array, dtype)

    def get(self, tensor: Any) -> tuple[Any, str]:
        """A copy, and its dtype."""
        return bits(np.array(tensor))

    def wait_to_read(self, tensors: Any) -> None:
        """Nothing: it returns when it has computed."""


class Prepared(Session):
    """The same in an implementation of `onnx.backend`: a module, or `module:Class`.

    `package` is what its version is that of.
    """

    def __init__(self, model: str, implementation: str, package: str) -> None:
        module, _, name = implementation.partition(":")
        super().__init__(model, module, package)
        self.onnx = importlib.import_module("onnx")
        self.prepare = (getattr(self.runtime, name) if name else self.runtime).prepare

    @cached_property
    def run(self) -> Any:
        """A function of the inputs, made by the first call: to refuse the model is its answer."""
        return self.prepare(self.onnx.load_from_string(self.model), "CPU").run
