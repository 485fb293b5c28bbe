"""How else jax' users write an operator's call: `lax` beside `jnp` and `nn`, operators of Python,
methods of arrays, `jax.vmap`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from d5test.backends.base import FAMILIES, Forms, Plan, Row, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, integers, jax, jnp, lax

forms = Forms()
for _operator, _functions in {
    "Relu": {"jnp.maximum(x, 0)": lambda x: jnp.maximum(x, 0)},
    "Sigmoid": {"lax.logistic": lax.logistic, "jax.scipy.special.expit": jax.scipy.special.expit},
    "Tanh": {"lax.tanh": lax.tanh},
    "Exp": {"lax.exp": lax.exp},
    "Log": {"lax.log": lax.log},
    "Sqrt": {"lax.sqrt": lax.sqrt},
    "Erf": {"jax.scipy.special.erf": jax.scipy.special.erf},
    "Abs": {"lax.abs": lax.abs, "abs(x)": abs},
    "Neg": {"lax.neg": lax.neg, "-x": lambda x: -x},
    "Reciprocal": {"1 / x": lambda x: 1 / x, "x ** -1": lambda x: x**-1},
    "Softplus": {"jnp.logaddexp(x, 0)": lambda x: jnp.logaddexp(x, 0)},
    "Add": {"a + b": lambda a, b: a + b},
    "Sub": {"a - b": lambda a, b: a - b},
    "Mul": {"a * b": lambda a, b: a * b},
    "MatMul": {"a @ b": lambda a, b: a @ b},
}.items():
    forms.same(_operator, _functions, arithmetic="S")


def alike(function: Plan, op: Any, a: Array, b: Array) -> Plan:
    """`function` does not broadcast."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise Unsupported("lax takes tensors of one shape and dtype")
    return function


for _operator, _function in {
    "Add": lax.add, "Sub": lax.sub, "Mul": lax.mul, "Div": lax.div, "Pow": lax.pow,
}.items():  # fmt: skip
    forms.add(_operator, f"lax.{_function.__name__}", arithmetic="S")(
        planned(partial(alike, _function))
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


for _operator, _name in (("ReduceSum", "sum"), ("ReduceMean", "mean")):
    forms.add(
        _operator,
        f"jax.Array.{_name}",
        arithmetic="S",
        values=(1,),
        attributes={"noop_with_empty_axes": (0,)},
    )(planned(partial(reduced, _name)))


def running(op: Any, x: Array, axis: Array) -> Plan:
    (over,) = integers(axis)
    return lambda x, axis: jnp.cumsum(x, over)


forms.add(
    "CumSum",
    "jnp.cumsum",
    arithmetic="S",
    values=(1,),
    attributes={"exclusive": (0,), "reverse": (0,)},
)(planned(running))

MATRICES = {"rank0": 2, "rank1": 2}
forms.same(
    "MatMul",
    {
        "lax.dot": lax.dot,
        "jnp.dot": jnp.dot,
        "jnp.tensordot": lambda a, b: jnp.tensordot(a, b, 1),
        "jnp.einsum": lambda a, b: jnp.einsum("ik,kj->ij", a, b),
        "lax.dot_general, the second transposed": lambda a, b: lax.dot_general(
            a, b.T, (((1,), (1,)), ((), ()))
        ),
    },
    where=MATRICES,
)
forms.same("MatMul", {"jnp.vdot": jnp.vdot}, where={"rank0": 1, "rank1": 1})


def batched(row: Row, op: Any, *inputs: Array | None) -> Any:
    """The second of two samples; an input that is an argument, or of whole numbers, is shared.

    The first has the same values, each in its neighbour's place.
    """
    own = [
        x is not None and i not in row.values and jnp.issubdtype(x.dtype, jnp.floating)
        for i, x in enumerate(inputs)
    ]
    function = jax.vmap(
        lambda *xs: row.call(op, *xs), in_axes=tuple(0 if o else None for o in own)
    )
    samples = (
        jnp.stack((lax.stop_gradient(jnp.roll(x, 1)), x)) if o else x
        for x, o in zip(inputs, own, strict=True)
    )
    result = function(*samples)
    return tuple(y[1] for y in result) if isinstance(result, Sequence) else result[1]


def of_rows(rows: Mapping[str, Row]) -> Forms:
    """Every row under `jax.vmap`."""
    return Forms(
        {
            operator: {"jax.vmap": replace(row, call=partial(batched, row))}
            for operator, row in rows.items()
        }
    )


_FAMILIES = [family for family in FAMILIES if family != "optimizers"]
forms = forms.merged(of_rows(Table.of("d5test.backends.jax", _FAMILIES)))
