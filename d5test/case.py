"""What is judged: an operator with its attributes, and a recipe for its inputs.

A case holds no arrays. Its repr rebuilds it, and it yields the same arrays on every machine and
with every NumPy: random data come from raw Philox words, never from NumPy's distributions, whose
streams NumPy does not promise to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.dtypes import NAMES, NUMBERS
from d5test.values import REGIMES

Array = NDArray[Any]
Arrays = tuple[Array | None, ...]

FLOATS = ("float64", "float32", "float16", "bfloat16")
"""The dtypes that are judged, widest first."""
NORMAL = ("normal",)
"""The regime of values and of upstream gradients of which nothing is said."""


@cache
def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`; bfloat16 and what has fewer bits are ml_dtypes'."""
    return np.dtype(getattr(ml_dtypes, name, name))


def is_float(name: str) -> bool:
    """Whether the dtype called `name` is a floating-point one."""
    return name in FLOATS


@dataclass(frozen=True, kw_only=True, repr=False)
class Operator:
    """An ONNX operator with its attributes set. A subclass is one operator, its fields are ONNX's.

    `forward(*inputs)` returns an array or a tuple of them, `backward(grads, inputs, outputs)` an
    array or a tuple with one entry for each input, `None` where ONNX says that there is no
    gradient. An optional input that is absent is `None`. Neither overwrites what it is given.
    Callers use `op(...)` and `op.vjp(...)`, which always return tuples.
    """

    domain: ClassVar[str] = ""
    op_type: ClassVar[str] = ""
    """What ONNX calls it, where that is not the name of the class."""
    since: ClassVar[int] = 1
    """The version of ONNX's operator set whose meaning this is."""
    stopped_outputs: ClassVar[tuple[int, ...]] = ()
    """Outputs through which no gradient flows (indices, masks, running statistics)."""
    stashed_outputs: ClassVar[tuple[int, ...]] = ()
    """Outputs in the dtype of `stash_type`: in float32, where the other dtypes are narrower."""
    follows_shifts: ClassVar[bool] = False
    """Whether f(x + t) = f(x) + t: its gradients add up to the upstream gradient, at ties too."""
    exact: ClassVar[bool] = False
    """Whether no rounding changes a result, as of And and Sign. A case then need not tell a lower
    precision from the right one, but elements that are in the wrong place."""
    unchanged: ClassVar[bool] = False
    """Whether the result is the input, as of Identity: then that is no wrong result."""
    sized_by_values: ClassVar[bool] = False
    """Whether values decide how many elements there are in a result, as of NonZero."""
    answers_nan: ClassVar[bool] = False
    """Whether IEEE 754 says what becomes of NaN and infinities, though results are no numbers."""
    arguments: ClassVar[tuple[int, ...]] = ()
    """Inputs that are floats, and yet no data but arguments of the call: scales, regions."""
    parameters: ClassVar[tuple[str, ...]] = ()
    """What its inputs are called in messages; nothing: by their numbers."""
    counted: ClassVar[tuple[int, ...]] = ()
    """Inputs that are whole numbers, with which it computes what is rounded: sizes of windows."""
    typed: ClassVar[bool] = False
    """Whether it is about dtypes: it is given arrays in their own and returns such, exactly."""
    random: ClassVar[bool] = False
    """Whether it draws numbers by chance: its `distribution` is judged, and no value of them."""
    whole_dtypes: ClassVar[bool] = False
    """Whether integers come in the reference's own dtype, and not in any of them."""
    apart: ClassVar[Mapping[int, tuple[int, ...]]] = MappingProxyType({})
    """By the position of an optional input: outputs that ONNX forbids a node that is given it."""

    def forward(self, *inputs: Any) -> Any:
        """The outputs: an array, or a tuple of arrays."""
        raise NotImplementedError

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        """One gradient for each input, from one upstream gradient for each output."""
        raise NotImplementedError

    def other_forward(self, *inputs: Any) -> Any:
        """The outputs by another formula in use, which the bars hold too; `None` if none is."""
        return None

    def other_backward(self, grads: Any, inputs: Any) -> Any:
        """The gradients by another formula in use, which the bars hold too; `None` if none is."""
        return None

    def other_slopes(self, grads: Any, inputs: Any) -> Iterator[Any]:
        """Gradients by each other formula in use that is differentiated once more, which the bars
        of second derivatives hold, too.
        """
        others = self.other_backward(grads, inputs)
        if others is not None:
            yield others

    def bounds(self, arrays: Any, grads: Any, arithmetic: Any) -> Any:
        """Bars of the outputs, or with upstream gradients of the gradients, that the operator
        knows by itself; `None`: they are those of the primitives that it calls.
        """
        return None

    def lowered(self, arrays: Any, grads: Any, bits: int) -> Any:
        """As `bounds`: the results as computed in so many bits."""
        return None

    def normwise(self, *inputs: Any) -> Any:
        """For each output, how many unit roundoffs its elements may be off besides their own
        terms: where an algorithm's error is bounded by a norm. `None`: by none.
        """
        return None

    def undefined(self, *inputs: Any) -> Any:
        """Where ONNX leaves open what the output of an operator that is `typed` is."""
        return False

    def linearised(self, *inputs: Any) -> Any:
        """As `forward`, by the formula of which forward mode takes the derivative."""
        return self.forward(*inputs)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        """Which axis of each input and output runs over independent samples, if any does.

        `shapes` are the inputs' shapes. `None`: the samples of this operator depend on each other.
        """
        return None

    def multiplications(self, *shapes: tuple[int, ...] | None) -> int | None:
        """Scalar multiplications of one forward pass on inputs of these shapes, if it counts."""
        return None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs, always as a tuple. In a formula that is differentiated this is one step."""
        recorder = next((x for x in inputs if hasattr(x, "applied")), None)
        if recorder is not None:
            outputs: tuple[Any, ...] = recorder.applied(self, inputs)
            return outputs
        return as_tuple(self.forward(*inputs))

    def vjp(
        self,
        grads: tuple[Any, ...],
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...] | None = None,
    ) -> tuple[Any, ...]:
        """The vector-Jacobian product: one gradient for each input, `None` where there is none.

        `grads` has an upstream gradient for each output; a missing one (`None`) counts as zero,
        and is handed on as `None` only for `stopped_outputs`.
        """
        outputs = self(*inputs) if outputs is None else outputs
        like = next((dy for dy in grads if dy is not None), None)  # outputs may be plain arrays
        grads = tuple(
            None
            if i in self.stopped_outputs
            else np.zeros_like(y if like is None else like, shape=np.shape(y))
            if i >= len(grads) or grads[i] is None
            else grads[i]
            for i, y in enumerate(outputs)
        )
        return as_tuple(self.backward(grads, inputs, outputs))

    def draws(self, *inputs: Any) -> bool:
        """Whether these inputs have no one result: another call may give another one."""
        return self.random

    def fits(self, inputs: tuple[Tensor | None, ...]) -> bool:
        """Whether inputs of such sizes, which nobody drew, are ones that it is meant for."""
        return True

    def input_name(self, i: int) -> str:
        """What an input is called in messages: `input 1`, or `input g` where it has a name."""
        return f"input {self.parameters[i] if i < len(self.parameters) else i}"

    @property
    def name(self) -> str:
        """The name by which it is asked for and reported, of each operator its own."""
        return type(self).__name__

    @classmethod
    def node_type(cls) -> tuple[str, str]:
        """The domain and the type of its nodes in ONNX."""
        return cls.domain, cls.op_type or cls.__name__

    @property
    def differentiable(self) -> bool:
        """Whether this operator brings a `backward`."""
        return type(self).backward is not Operator.backward

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes by ONNX's names; those that are `None` (absent) are left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def with_(self, **attributes: Any) -> Self:
        """The same operator with other attributes."""
        return replace(self, **attributes)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(_changed(self))})"

    @property
    def _repr_pretty_(self) -> Callable[[Any, bool], None]:
        """What Hypothesis prints: it would look for class variables that only rows have.

        A property, since Hypothesis calls whatever a class itself has under this name.
        """
        return lambda printer, cycle: printer.text(repr(self))


@dataclass(frozen=True)
class Batch:
    """The axis over independent samples of each input and output; `None`: shared by them."""

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


@dataclass(frozen=True)
class Tensor:
    """The recipe of one input.

    `values` names a value regime (`d5test.values.REGIMES`) and its parameters:
    `("normal",)`, `("below", 5)`. With `data`, the values stand there, flat, in row-major order.
    `layout` says how a backend that has strides lays it out; the values are the same.
    `same_as` is the position of an earlier input of the case which this input is, as an object.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    values: tuple[Any, ...] = NORMAL
    layout: str = "contiguous"
    data: tuple[Any, ...] | None = None
    same_as: int | None = None

    def array(self, seed: int, position: int) -> Array:
        """The values, in row-major order; `seed` and `position` choose the random stream."""
        dtype = dtype_of(self.dtype)
        if self.data is not None:
            return np.array(self.data, dtype).reshape(self.shape)
        regime, *parameters = self.values
        words = np.random.Philox(key=[seed, position])
        values = REGIMES[regime](words, self.shape, dtype, *parameters)
        return np.asarray(values).astype(dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({', '.join([repr(self.shape), *_changed(self)[1:]])})"


@dataclass(frozen=True)
class Case:
    """An operator and the recipes of its inputs. `None` is an optional input left out.

    `form` names the call of the framework that is to compute it, one of the backend's `forms`;
    empty: the call of the backend's row. `dy` names the regime of the upstream gradients, as
    `values` of a `Tensor` does. `alone` is the position of the one input whose gradient is asked
    for, where it is not that of all.
    """

    op: Operator
    inputs: tuple[Tensor | None, ...]
    seed: int = 0
    form: str = ""
    dy: tuple[Any, ...] = NORMAL
    alone: int | None = None

    def arrays(self) -> Arrays:
        """The inputs, each in its own dtype; inputs that are the same tensor are one array."""
        return self.shared(
            None if t is None or t.same_as is not None else t.array(self.seed, i)
            for i, t in enumerate(self.inputs)
        )

    def shared(self, arrays: Iterable[Array | None]) -> Arrays:
        """The arrays; where an input is an earlier one again, that one."""
        inputs = list(arrays)
        for i, tensor in enumerate(self.inputs):
            if tensor is not None and tensor.same_as is not None:
                inputs[i] = inputs[tensor.same_as]
        return tuple(inputs)

    def upstream(self, outputs: tuple[Any, ...]) -> Arrays:
        """Upstream gradients for `outputs`, in the dtype under test and the regime `dy`.

        Those of an operator that is `typed` are in its outputs' dtypes, where these are judged.

        `None` for an output through which no gradient flows. If `dy` is one element, that is all
        that is asked for: the other outputs have none.
        """
        flowing = [i for i in range(len(outputs)) if i not in self.op.stopped_outputs]
        if self.dy[0] == "onehot" and flowing:
            flowing = [flowing[self.seed % len(flowing)]]
        dtypes = [y.dtype.name if self.op.typed else self.dtype for y in outputs]
        with np.errstate(over="ignore"):  # the regime is one of the dtype under test
            return tuple(
                Tensor(np.shape(y), dtypes[i], self.dy).array(self.seed, 1000 + i)
                if i in flowing and is_float(dtypes[i])
                else None
                for i, y in enumerate(outputs)
            )

    @property
    def dtype(self) -> str:
        """The dtype under test: that of the first floating-point input, or of what is made."""
        floats = (t.dtype for t in self.inputs if t is not None and is_float(t.dtype))
        return next(floats, NAMES[getattr(self.op, "output_datatype", NUMBERS["float32"])])

    @property
    def random(self) -> bool:
        """Whether another seed makes other inputs."""
        return any(t is not None and t.data is None and 0 not in t.shape for t in self.inputs)

    @property
    def shapes(self) -> tuple[tuple[int, ...] | None, ...]:
        """The inputs' shapes."""
        return tuple(None if t is None else t.shape for t in self.inputs)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The positions of the inputs whose gradients are asked for."""
        return self.pullable if self.alone is None else (self.alone,)

    @property
    def pullable(self) -> tuple[int, ...]:
        """The positions of the floating-point inputs, those that can have a gradient."""
        return tuple(
            i
            for i, t in enumerate(self.inputs)
            if t is not None
            and is_float(t.dtype)
            and t.same_as is None
            and i not in self.op.arguments
        )

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed else ""
        form = f", form={self.form!r}" if self.form else ""
        dy = f", dy={self.dy!r}" if self.dy != NORMAL else ""
        alone = "" if self.alone is None else f", alone={self.alone}"
        return f"Case({self.op!r}, {self.inputs!r}{seed}{form}{dy}{alone})"


def _changed(thing: Operator | Tensor) -> list[str]:
    """The fields that are not what they are by default, as a call is given them."""
    return [
        f"{f.name}={getattr(thing, f.name)!r}"
        for f in fields(thing)
        if getattr(thing, f.name) != f.default
    ]


def as_tuple(result: Any) -> tuple[Any, ...]:
    """What a function returned, as a tuple."""
    return result if isinstance(result, tuple) else (result,)
