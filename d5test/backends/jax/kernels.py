"""What runs below a call of jax: the primitives of an eager one, XLA's instructions of a compiled.

Whole numbers stay as they are, since they may decide shapes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from d5test.backends.base import Function
from d5test.backends.hlo import instructions
from d5test.backends.jax.framework import jax, jnp


def of_eager(function: Function, inputs: Sequence[Any]) -> list[str]:
    """The primitives, in order."""
    traced, arguments = floating(function, inputs)
    return list(primitives(jax.make_jaxpr(traced)(*arguments).jaxpr))


def of_compiled(function: Function, inputs: Sequence[Any]) -> list[str]:
    """What XLA made of them."""
    traced, arguments = floating(function, inputs)
    return list(instructions(jax.jit(traced).lower(*arguments).compile().as_text()))


def floating(function: Function, inputs: Sequence[Any]) -> tuple[Function, list[Any]]:
    """A function of the floating-point inputs alone, and these."""
    places = [
        i for i, x in enumerate(inputs) if x is not None and jnp.issubdtype(x.dtype, jnp.inexact)
    ]

    def of_floats(*given: Any) -> Any:
        every = list(inputs)
        for i, x in zip(places, given, strict=True):
            every[i] = x
        return function(*every)

    return of_floats, [inputs[i] for i in places]


def primitives(jaxpr: Any) -> Iterator[str]:
    """The primitives of an expression; of one that stands for others, theirs."""
    for equation in jaxpr.eqns:
        inner = [p for value in equation.params.values() for p in expressions(value)]
        if inner:
            for expression in inner:
                yield from primitives(expression)
        else:
            yield equation.primitive.name


def expressions(value: Any) -> Iterator[Any]:
    """The expressions in a parameter of a primitive."""
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from expressions(one)
    elif hasattr(value, "eqns"):
        yield value
    elif hasattr(value, "jaxpr"):
        yield from expressions(value.jaxpr)
