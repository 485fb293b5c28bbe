"""Which strategy draws which operator's attributes and inputs.

Ours and strangers' operators use the same two decorators:

    @attributes(Softmax)
    def softmax_attributes(d: Draw) -> Softmax:
        return Softmax(axis=d.axis(3))

    @inputs(Softmax)
    def softmax_inputs(d: Draw, op: Softmax) -> tuple[Tensor | None, ...]:
        return (d.tensor(d.sides(3)),)

An operator without `attributes` is drawn with its defaults. `inputs` serves any valid operator of
its class, not only those that `attributes` draws: a pinned operator gets its inputs there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from d5test.case import Case, Operator, Tensor
from d5test.strategies.draw import Draw

Op = TypeVar("Op", bound=Operator)
Inputs = tuple[Tensor | None, ...]
AttributeRule = Callable[[Draw], Op]
InputRule = Callable[[Draw, Op], Inputs]

_ATTRIBUTES: dict[type[Operator], Callable[[Draw], Any]] = {}
_INPUTS: dict[type[Operator], Callable[[Draw, Any], Inputs]] = {}


def attributes(cls: type[Op]) -> Callable[[AttributeRule[Op]], AttributeRule[Op]]:
    """Decorate the function that draws the attributes of `cls`, all of them together."""

    def register(rule: AttributeRule[Op]) -> AttributeRule[Op]:
        _enter(_ATTRIBUTES, cls, rule, "attributes")
        return rule

    return register


def inputs(cls: type[Op]) -> Callable[[InputRule[Op]], InputRule[Op]]:
    """Decorate the function that draws the recipes of the inputs of an operator of `cls`."""

    def register(rule: InputRule[Op]) -> InputRule[Op]:
        _enter(_INPUTS, cls, rule, "inputs")
        return rule

    return register


def drawable() -> tuple[type[Operator], ...]:
    """The operators that cases can be drawn of, in the order of their registration."""
    return tuple(_INPUTS)


def operators(
    cls: type[Op], dtype: str = "float32", *, degenerate: bool = False
) -> SearchStrategy[Op]:
    """Operators of `cls` with drawn attributes."""
    _require(cls)
    return _operators(cls, dtype, degenerate)


def cases(
    op: Operator | type[Operator], dtype: str, *, degenerate: bool = False
) -> SearchStrategy[Case]:
    """Cases of an operator, or of all operators of a class, with inputs in `dtype`.

    `degenerate` draws the shapes at the border: empty, scalar, of size one.
    """
    _require(op if isinstance(op, type) else type(op))
    return _cases(op, dtype, degenerate)


def case_with(op: Operator | type[Operator], d: Draw) -> Case:
    """A case of an operator, or of all operators of a class, by the choices that `d` makes."""
    _require(op if isinstance(op, type) else type(op))
    drawn = _draw_operator(op, d) if isinstance(op, type) else op
    tensors = _INPUTS[type(drawn)](d, drawn)
    return Case(drawn, tuple(tensors), d.integer(0, 2**32 - 1))


@st.composite
def _operators(draw: DrawFn, cls: type[Op], dtype: str, degenerate: bool) -> Op:
    return _draw_operator(cls, Draw(draw, dtype, degenerate))


@st.composite
def _cases(draw: DrawFn, op: Operator | type[Operator], dtype: str, degenerate: bool) -> Case:
    return case_with(op, Draw(draw, dtype, degenerate))


def _draw_operator(cls: type[Op], d: Draw) -> Op:
    rule = _ATTRIBUTES.get(cls)
    drawn: Op = cls() if rule is None else rule(d)
    return drawn


def _enter(
    table: dict[type[Operator], Callable[..., Any]],
    cls: type[Operator],
    rule: Callable[..., Any],
    what: str,
) -> None:
    if cls in table:
        raise ValueError(
            f"{table[cls].__module__}.{table[cls].__qualname__} draws the {what} of "
            f"{cls.__name__} already; {rule.__module__}.{rule.__qualname__} would be a second one"
        )
    table[cls] = rule


def _require(cls: type[Operator]) -> None:
    if cls not in _INPUTS:
        raise LookupError(
            f"nothing draws inputs of {cls.__name__}: decorate a function with "
            f"@inputs({cls.__name__}) (see d5test.strategies.registry) and import its module"
        )
