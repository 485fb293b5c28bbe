"""Other calls that users of jax write: `lax`, `jnp` and `nn`, methods of arrays, `jax.vmap`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from d5test.backends.base import (
    FAMILIES,
    UNDERIVED,
    Forms,
    Plan,
    Row,
    Table,
    Unsupported,
    padded,
    planned,
    sample_axes,
)
from d5test.backends.jax.framework import Array, integers, jax, jnp, lax
from d5test.backends.jax.movement import shape_of, widths_of
from d5test.backends.jax.types import cast
from d5test.backends.windows import Windows
from d5test.dtypes import NAMES

forms = Forms()
for _operator, _functions in {
    "Relu": {
        "jnp.maximum(x, 0)": lambda x: jnp.maximum(x, 0),
        "lax.max(x, 0)": lambda x: lax.max(x, jnp.zeros_like(x)),
    },
    "Sigmoid": {"lax.logistic": lax.logistic, "jax.scipy.special.expit": jax.scipy.special.expit},
    "Tanh": {"lax.tanh": lax.tanh},
    "Sin": {"lax.sin": lax.sin},
    "Cos": {"lax.cos": lax.cos},
    "Tan": {"lax.tan": lax.tan},
    "Asin": {"jnp.arcsin": jnp.arcsin, "lax.asin": lax.asin},
    "Acos": {"jnp.arccos": jnp.arccos, "lax.acos": lax.acos},
    "Atan": {"jnp.arctan": jnp.arctan, "lax.atan": lax.atan},
    "Sinh": {"lax.sinh": lax.sinh},
    "Cosh": {"lax.cosh": lax.cosh},
    "Asinh": {"jnp.arcsinh": jnp.arcsinh, "lax.asinh": lax.asinh},
    "Acosh": {"jnp.arccosh": jnp.arccosh, "lax.acosh": lax.acosh},
    "Atanh": {"jnp.arctanh": jnp.arctanh, "lax.atanh": lax.atanh},
    "Exp": {"lax.exp": lax.exp},
    "Log": {"lax.log": lax.log},
    "Sqrt": {"lax.sqrt": lax.sqrt},
    "Erf": {"jax.scipy.special.erf": jax.scipy.special.erf},
    "Abs": {"lax.abs": lax.abs, "abs(x)": abs},
    "Neg": {"lax.neg": lax.neg, "-x": lambda x: -x},
    "Reciprocal": {
        "1 / x": lambda x: 1 / x, "x ** -1": lambda x: x**-1, "lax.reciprocal": lax.reciprocal,
    },
    "Floor": {"lax.floor": lax.floor},
    "Ceil": {"lax.ceil": lax.ceil},
    "Round": {
        "jnp.rint": jnp.rint,
        "lax.round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    },
    "Sign": {"lax.sign": lax.sign},
    "Softplus": {"jnp.logaddexp(x, 0)": lambda x: jnp.logaddexp(x, 0)},
    "Add": {"a + b": lambda a, b: a + b},
    "Sub": {"a - b": lambda a, b: a - b},
    "Mul": {"a * b": lambda a, b: a * b},
    "MatMul": {"a @ b": lambda a, b: a @ b},
    "Pow": {"jnp.pow": jnp.pow},
}.items():  # fmt: skip
    forms.same(_operator, _functions, arithmetic="S")


def astype(x: Array, dtype: str) -> Array:
    return x.astype(dtype)


_casts: dict[str, Plan] = {"jax.Array.astype": astype, "jnp.asarray": jnp.asarray}
for _title, _cast in _casts.items():
    forms.add("Cast", _title, arithmetic="F")(planned(partial(cast, _cast)))


@forms.add("ConstantOfShape", "lax.full", values=(0,), gradient=UNDERIVED)
@planned
def full(op: Any, shape: Array) -> Plan:
    name, _, (number,) = op.value
    sides = integers(shape)
    return lambda shape: lax.full(sides, number, name)


@forms.add("BitCast", "jax.Array.view", arithmetic="F", gradient=UNDERIVED)
def view(op: Any, x: Array) -> Array:
    return x.view(NAMES[op.to])


def alike(function: Plan, op: Any, a: Array, b: Array) -> Plan:
    """`function` does not broadcast."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise Unsupported("lax takes tensors of one shape and dtype")
    return function


for _operator, _function in {
    "Add": lax.add, "Sub": lax.sub, "Mul": lax.mul, "Div": lax.div, "Pow": lax.pow,
    "Max": lax.max, "Min": lax.min,
}.items():  # fmt: skip
    _where = {"inputs": 2} if _operator in ("Max", "Min") else {}
    forms.add(_operator, f"lax.{_function.__name__}", arithmetic="S", where=_where)(
        planned(partial(alike, _function))
    )


forms.same(
    "Mod",
    {"jnp.remainder": jnp.remainder, "a % b": lambda a, b: a % b},
    attributes={"fmod": (0,)},
    stopped=(1,),
)


def with_number(function: Plan, number: float, x: Array, other: Array) -> Array:
    """`function` takes the number that stands in all of `other`."""
    if jnp.broadcast_shapes(x.shape, other.shape) != x.shape:
        raise Unsupported("a number has no shape that the result could take")
    return function(x, number)


for _operator, _title, _function, _number in (
    ("Add", "x + 0.75", lambda x, n: x + n, 0.75),
    ("Mul", "x * 0.3", lambda x, n: x * n, 0.3),
    ("Div", "x / 3.0", lambda x, n: x / n, 3.0),
    ("Pow", "x ** 2", lambda x, n: x**2, 2.0),
    ("Pow", "lax.integer_pow(x, 3)", lambda x, n: lax.integer_pow(x, 3), 3.0),
):
    forms.same(
        _operator,
        {_title: partial(with_number, _function, _number)},
        arithmetic="S",
        constants={1: _number},
    )


def reduced(name: str, op: Any, x: Array, axes: Any = None) -> Plan:
    """A method of arrays that has `axis` and `keepdims`."""
    over = (() if axes is None else integers(axes)) or None
    keepdims = bool(op.keepdims)
    return lambda x, axes=None: getattr(x, name)(axis=over, keepdims=keepdims)


def by_axis(function: Plan, op: Any, x: Array, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    over, keepdims = (() if axes is None else integers(axes)) or None, bool(op.keepdims)
    return lambda x, axes=None: function(x, axis=over, keepdims=keepdims)


for _operator, _name in (
    ("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "max"), ("ReduceMin", "min"),
    ("ReduceProd", "prod"),
):  # fmt: skip
    forms.add(
        _operator,
        f"jax.Array.{_name}",
        arithmetic="S",
        values=(1,),
        attributes={"noop_with_empty_axes": (0,)},
    )(planned(partial(reduced, _name)))


def running(function: Plan, op: Any, x: Array, axis: Array) -> Plan:
    (over,) = integers(axis)
    return lambda x, axis: function(x, over)


for _title, _function in (
    ("jnp.cumsum", jnp.cumsum), ("jax.Array.cumsum", lambda x, axis: x.cumsum(axis)),
):  # fmt: skip
    forms.add(
        "CumSum", _title, arithmetic="S", values=(1,),
        attributes={"exclusive": (0,), "reverse": (0,)},
    )(planned(partial(running, _function)))  # fmt: skip


def along_axis(function: Plan, op: Any, x: Array) -> Array:
    return function(x, axis=op.axis)


for _operator, _function in (
    ("Softmax", jax.scipy.special.softmax), ("LogSoftmax", jax.scipy.special.log_softmax),
):  # fmt: skip
    _name = f"jax.scipy.special.{_function.__name__}"
    forms.add(_operator, _name, arithmetic="S")(partial(along_axis, _function))


def folded(function: Plan, op: Any, x: Array, axes: Any = None) -> Plan:
    """`function` has no `keepdims`."""
    over = tuple(a % x.ndim for a in (() if axes is None else integers(axes)))
    return lambda x, axes=None: function(x, over or tuple(range(x.ndim)))


for _operator, _titles in {
    "ReduceSum": {
        "lax.reduce_sum": lax.reduce_sum,
        "lax.reduce(x, 0, lax.add)": lambda x, axes: lax.reduce(
            x, jnp.zeros((), x.dtype), lax.add, axes
        ),
    },
    "ReduceMax": {
        "lax.reduce_max": lax.reduce_max,
        "lax.reduce(x, -inf, lax.max)": lambda x, axes: lax.reduce(
            x, jnp.full((), -jnp.inf, x.dtype), lax.max, axes
        ),
    },
}.items():  # fmt: skip
    for _title, _function in _titles.items():
        forms.add(
            _operator, _title, arithmetic="S", values=(1,),
            attributes={"keepdims": (0,), "noop_with_empty_axes": (0,)},
        )(planned(partial(folded, _function)))  # fmt: skip
forms.add(
    "ReduceLogSumExp",
    "jax.scipy.special.logsumexp",
    arithmetic="S",
    values=(1,),
    attributes={"noop_with_empty_axes": (0,)},
)(planned(partial(by_axis, jax.scipy.special.logsumexp)))


@forms.add(
    "LayerNormalization", "jax.nn.standardize", outputs=1, arithmetic="S",
    constants={1: 1.0, 2: 0.0},
)  # fmt: skip
@planned
def standardized(op: Any, x: Array, *_: Array | None) -> Plan:
    axes, epsilon = tuple(range(op.axis % x.ndim, x.ndim)), op.epsilon
    return lambda x, *_: jax.nn.standardize(x, axes, epsilon=epsilon)


def transposed(function: Plan, op: Any, x: Array) -> Plan:
    order = tuple(op.perm or range(x.ndim)[::-1])
    return lambda x: function(x, order)


for _title, _function in (
    ("lax.transpose", lax.transpose), ("jax.Array.transpose", lambda x, axes: x.transpose(axes)),
):  # fmt: skip
    forms.add("Transpose", _title, arithmetic="F")(planned(partial(transposed, _function)))


forms.add("Concat", "lax.concatenate", arithmetic="F")(
    lambda op, *xs: lax.concatenate(xs, op.axis % xs[0].ndim)
)
forms.add("Concat", "jnp.concat", arithmetic="F")(lambda op, *xs: jnp.concat(xs, axis=op.axis))
BOUNDED = {"inputs": 3, "present1": True}
for _title, _function in (
    ("lax.clamp", lambda x, low, high: lax.clamp(low, x, high)),
    ("jax.Array.clip", lambda x, low, high: x.clip(low, high)),
):
    forms.same(
        "Clip",
        {
            _title: lambda x, low, high, clip=_function: clip(
                x, lax.stop_gradient(low), lax.stop_gradient(high)
            )
        },
        arithmetic="F",
        stopped=(1, 2),
        where=BOUNDED,
    )
SIX = {"inputs": 3, "present1": True, "present2": True}
forms.same(
    "Clip", {"jax.nn.relu6": lambda x, low, high: jax.nn.relu6(x)},
    arithmetic="F", stopped=(1, 2), constants={1: 0.0, 2: 6.0}, where=SIX,
)  # fmt: skip


def reshaped(function: Plan, op: Any, x: Array, shape: Array) -> Plan:
    """`function` works out no side."""
    sides = jax.eval_shape(lambda x: jnp.reshape(x, shape_of(op, x, shape)), x).shape
    return lambda x, shape: function(x, sides)


for _title, _function in (
    ("lax.reshape", lax.reshape), ("jax.Array.reshape", lambda x, sides: x.reshape(sides)),
):  # fmt: skip
    forms.add("Reshape", _title, arithmetic="F", values=(1,))(
        planned(partial(reshaped, _function))
    )


def at_axes(function: Plan, op: Any, x: Array, axes: Array) -> Plan:
    """`function` takes axes."""
    chosen = integers(axes)
    return lambda x, axes: function(x, chosen)


for _operator, _title, _function in (
    ("Squeeze", "lax.squeeze", lax.squeeze),
    ("Squeeze", "jax.Array.squeeze", lambda x, axes: x.squeeze(axes)),
    ("Unsqueeze", "lax.expand_dims", lax.expand_dims),
):
    forms.add(_operator, _title, arithmetic="F", values=(1,), where={"inputs": 2})(
        planned(partial(at_axes, _function))
    )


@forms.add("Tile", "lax.tile", arithmetic="S", values=(1,))
@planned
def tiled(op: Any, x: Array, repeats: Array) -> Plan:
    times = integers(repeats)
    return lambda x, repeats: lax.tile(x, times)


@forms.add("Split", "lax.split", arithmetic="F", values=(1,), where={"inputs": 2})
@planned
def split(op: Any, x: Array, sizes: Array) -> Plan:
    sides, axis = integers(sizes), op.axis % x.ndim
    return lambda x, sizes: tuple(lax.split(x, sides, axis))


forms.add("Gather", "jax.Array.take", arithmetic="S")(
    lambda op, x, indices: x.take(indices, op.axis)
)


@forms.add("Gather", "jnp.take_along_axis", arithmetic="S", where={"rank1": 1})
@planned
def gathered(op: Any, x: Array, indices: Array) -> Plan:
    shape = [1] * x.ndim
    shape[op.axis] = -1
    return lambda x, indices: jnp.take_along_axis(x, indices.reshape(shape), op.axis)


forms.add("Compress", "jnp.compress", arithmetic="F")(
    lambda op, x, condition: jnp.compress(condition, x, op.axis)
)


@forms.add("Slice", "lax.slice", arithmetic="F", values=(1, 2, 3, 4))
@planned
def sliced(op: Any, x: Array, *arguments: Array | None) -> Plan:
    """Parts in steps that go forward."""
    starts, ends, axes, steps = padded(arguments, 4)
    first, last = integers(starts), integers(ends)
    dims = range(len(first)) if axes is None else integers(axes)
    strides = (1,) * len(first) if steps is None else integers(steps)
    if min(strides, default=1) < 1:
        raise Unsupported("lax.slice goes forward")
    whole = [(0, n, 1) for n in x.shape]
    for start, end, axis, step in zip(first, last, dims, strides, strict=True):
        begin, limit, _ = slice(start, end, step).indices(x.shape[axis])
        whole[axis] = (begin, max(begin, limit), step)
    begins, limits, strides = zip(*whole, strict=True)
    return lambda x, *_: lax.slice(x, begins, limits, strides)


def by_steps(n: int) -> tuple[str, str, str]:
    """The names of axes of x (n, c, ...), w (c_out, c_in, ...) and y in `lax.conv`'s words."""
    places = "DHW"[-n:]
    return f"NC{places}", f"OI{places}", f"NC{places}"


@forms.add("Pad", "lax.pad", arithmetic="F", values=(1, 3), attributes={"mode": ("constant",)})
@planned
def padded_or_cut(op: Any, x: Array, pads: Array, value: Any = None, axes: Any = None) -> Plan:
    """Negative widths cut off; nothing is put between the elements."""
    sides = [(low, high, 0) for low, high in widths_of(x, pads, axes)]

    def call(x: Array, pads: Array, value: Any = None, axes: Any = None) -> Array:
        return lax.pad(x, jnp.zeros((), x.dtype) if value is None else value.reshape(()), sides)

    return call


@forms.add(
    "Conv", "lax.conv", arithmetic="S", where={"inputs": 2},
    attributes={"group": (1,), "dilations": (None,), "pads": (None,),
                "auto_pad": ("VALID", "SAME_UPPER")},
)  # fmt: skip
@planned
def convolved_by_name(op: Any, x: Array, w: Array) -> Plan:
    strides = op.strides or (1,) * (x.ndim - 2)
    padding = "SAME" if op.auto_pad == "SAME_UPPER" else op.auto_pad
    return lambda x, w: lax.conv(x, w, strides, padding)


@forms.add(
    "Conv", "lax.conv_with_general_padding", arithmetic="S",
    attributes={"group": (1,)}, where={"inputs": 2},
)  # fmt: skip
@planned
def convolved(op: Any, x: Array, w: Array) -> Plan:
    at = Windows.of(op, x.shape[2:], w.shape[2:])
    none = (1,) * len(at.kernel)
    return lambda x, w: lax.conv_with_general_padding(
        x, w, at.strides, at.pads, none, at.dilations
    )


@forms.add(
    "ConvTranspose", "lax.conv_transpose", arithmetic="S",
    attributes={"group": (1,), "auto_pad": ("VALID",), "pads": (None,),
                "output_padding": (None,), "output_shape": (None,)},
    where={"inputs": 2},
)  # fmt: skip
@planned
def convolved_back(op: Any, x: Array, w: Array) -> Plan:
    at = Windows.of(op, x.shape[2:], w.shape[2:])
    spans = [(k - 1) * d + 1 for k, d in zip(at.kernel, at.dilations, strict=True)]
    if any(k < s for k, s in zip(spans, at.strides, strict=True)):
        raise Unsupported("lax writes a whole stride where the kernel is shorter")
    names = by_steps(len(spans))
    return lambda x, w: lax.conv_transpose(
        x, w, at.strides, "VALID", at.dilations, names, transpose_kernel=True
    )


def compiled(row: Row, op: Any, *inputs: Array | None, give: bool = False) -> Any:
    """The row compiled; `give`: it may write into its buffers, which are copies of the inputs."""
    own = [i for i, x in enumerate(inputs) if x is not None and i not in row.values]

    def function(*xs: Array) -> Any:
        at = dict(zip(own, xs, strict=True))
        return row.call(op, *(at.get(i, x) for i, x in enumerate(inputs)))

    jitted = jax.jit(function, donate_argnums=tuple(range(len(own))) if give else ())
    return jitted(*(jnp.array(inputs[i]) if give else inputs[i] for i in own))


DONATED = ("Relu", "Exp", "Add", "Mul", "Where", "Softmax", "MatMul", "Transpose", "CumSum")
"""Operators whose results may take the place of an input; others are compiled alike."""

MATRICES = {"rank0": 2, "rank1": 2}
forms.same(
    "MatMul",
    {
        "lax.dot": lax.dot,
        "jnp.dot": jnp.dot,
        "jax.Array.dot": lambda a, b: a.dot(b),
        "jnp.tensordot": lambda a, b: jnp.tensordot(a, b, 1),
        "jnp.einsum": lambda a, b: jnp.einsum("ik,kj->ij", a, b),
        "lax.dot_general, the second transposed": lambda a, b: lax.dot_general(
            a, b.T, (((1,), (1,)), ((), ()))
        ),
    },
    where=MATRICES,
)
forms.same("MatMul", {"jnp.vdot": jnp.vdot}, where={"rank0": 1, "rank1": 1})


def batched(row: Row, varied: bool, op: Any, *inputs: Array | None) -> Any:
    """The second of two samples; the first has the same values, each in its neighbour's place."""
    axes, out = sample_axes(row, inputs, varied)
    function = jax.vmap(lambda *xs: row.call(op, *xs), in_axes=axes, out_axes=out)
    samples = (
        x if axis is None else jnp.stack((lax.stop_gradient(jnp.roll(x, 1)), x), axis)
        for x, axis in zip(inputs, axes, strict=True)
    )
    result = function(*samples)
    several = isinstance(result, Sequence)
    outputs = tuple(jnp.take(y, 1, out) for y in (result if several else (result,)))
    return outputs if several else outputs[0]


def of_rows(rows: Mapping[str, Row]) -> Forms:
    """Every row under `jax.vmap`."""
    return Forms(
        {
            operator: {
                name: replace(row, call=partial(batched, row, varied), transformed=True)
                for name, varied in (("jax.vmap", False), ("jax.vmap(in_axes=)", True))
            }
            for operator, row in rows.items()
        }
    )


def of_new_rows(rows: Mapping[str, Row]) -> Forms:
    """Rows that are not jax's own under `jax.vmap`, and under `jax.jit`.

    Those of jax are compiled by the backend `jax-compiled`.
    """
    jitted = {
        operator: {"jax.jit": replace(row, call=partial(compiled, row), transformed=True)}
        for operator, row in rows.items()
    }
    return of_rows(rows).merged(jitted)


_FAMILIES = [family for family in FAMILIES if family != "optimizers"]
_rows = Table.of("d5test.backends.jax", _FAMILIES)
forms = forms.merged(of_rows(_rows))
for _operator in DONATED:
    _row = _rows[_operator]
    forms[_operator]["jax.jit(donate_argnums=)"] = replace(
        _row,
        call=partial(compiled, _row, give=True),
        gradient="a gradient may need the buffers that were given away",
    )
