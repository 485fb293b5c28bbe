"""Which strategy draws which operator's attributes and inputs.

Ours and strangers' operators use the same two decorators:

    @attributes(Softmax)
    def softmax_attributes(d: Draw) -> Softmax:
        return Softmax(axis=d.axis(3))

    @inputs(Softmax)
    def softmax_inputs(d: Draw, op: Softmax) -> tuple[Tensor | None, ...]:
        return (d.tensor(d.sides(3)),)

Attributes that are independent of each other are a line, `choices(Gelu, approximate=("none",
"tanh"))`; an operator of which nothing is said is drawn with its defaults. `inputs` serves any
valid operator of its class, not only those that are drawn: a pinned operator gets its inputs there
too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from d5test.case import Case, Operator, Tensor
from d5test.strategies.draw import Draw
from d5test.strategies.pairs import MANY
from d5test.strategies.sizes import Sizes

T = TypeVar("T")
Rule = TypeVar("Rule", bound=Callable[..., Any])
Op = TypeVar("Op", bound=Operator)
Inputs = tuple[Tensor | None, ...]
AttributeRule = Callable[[Draw], Op]
InputRule = Callable[[Draw, Op], Inputs]

NORMAL = ("normal",)
MANY_NUMBERS = 2**24 - 1
"""More numbers than there are cases."""
PLAIN = 4
"""Of so many cases one has attributes of which most are the simplest, where there are `MANY`."""

FREE = frozenset({
    "activations", "alpha", "beta", "bias", "count_include_pad", "epsilon", "is_causal",
    "linear_before_reset", "momentum", "scale", "stash_type", "storage_order", "training_mode",
})  # fmt: skip
"""Attributes of which a problem's sizes say nothing: those of a real case are drawn."""

_ATTRIBUTES: dict[type[Operator], Callable[[Draw], Any]] = {}
_INPUTS: dict[type[Operator], Callable[[Draw, Any], Inputs]] = {}


def attributes(cls: type[Op]) -> Callable[[AttributeRule[Op]], AttributeRule[Op]]:
    """Decorate the function that draws the attributes of `cls`, all of them together."""
    return _entering(_ATTRIBUTES, (cls,), "attributes")


def choices(*classes: type[Operator], **options: Sequence[Any] | Callable[[Draw], Any]) -> None:
    """Draw each attribute of these classes by itself.

    It is one of its options, of which the first is the simplest, or what a function draws.
    """

    def rule(cls: type[Op]) -> AttributeRule[Op]:
        def draw(d: Draw) -> Op:
            return cls(**{k: o(d) if callable(o) else d.choose(o) for k, o in options.items()})

        return draw

    for cls in classes:
        attributes(cls)(rule(cls))


def inputs(*classes: type[Op]) -> Callable[[InputRule[Op]], InputRule[Op]]:
    """Decorate the function that draws the recipes of the inputs of an operator of `classes`."""
    return _entering(_INPUTS, classes, "inputs")


def drawable() -> tuple[type[Operator], ...]:
    """The operators that cases can be drawn of, in the order of their registration."""
    return tuple(_INPUTS)


def operators(
    cls: type[Op], dtype: str = "float32", *, degenerate: bool = False
) -> SearchStrategy[Op]:
    """Operators of `cls` with drawn attributes."""
    _require(cls)
    return drawn_by(partial(_draw_operator, cls), dtype, degenerate)


def cases(
    op: Operator | type[Operator],
    dtype: str,
    *,
    degenerate: bool = False,
    sizes: Callable[[int], Sizes] | None = None,
    attributes: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> SearchStrategy[Case]:
    """Cases of an operator, or of all operators of a class, with inputs in `dtype`.

    `degenerate` draws the shapes at the border: empty, scalar, of size one. `sizes` says by a
    number that is drawn which sides a case has (`d5test.strategies.sizes.Deal`); without, they are
    small and different. `attributes` has the only values that some attributes may have.
    """
    cls = op if isinstance(op, type) else type(op)
    _require(cls)
    rule = partial(case_with, op, attributes=attributes)
    return drawn_by(rule, dtype, degenerate, sizes, plain=len(fields(cls)) >= MANY)


def case_with(
    op: Operator | type[Operator],
    d: Draw,
    attributes: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> Case:
    """A case of an operator, or of all operators of a class, by the choices that `d` makes."""
    _require(op if isinstance(op, type) else type(op))
    drawn = _draw_operator(op, d) if isinstance(op, type) else op
    if attributes:
        drawn = drawn.with_(**{name: d.choose(values) for name, values in attributes.items()})
    problem = None if d.degenerate else d.sizes.problem
    if problem is not None and isinstance(op, type):
        sized = {f.name: getattr(problem.op, f.name) for f in fields(problem.op)}
        drawn = drawn.with_(**{name: x for name, x in sized.items() if name not in FREE})
    tensors = tuple(_INPUTS[type(drawn)](d, drawn))
    if problem is not None:
        tensors = _sized(tensors, problem)
        d.sizes.reached = True
    return Case(drawn, tensors, d.integer(0, 2**32 - 1))


def _sized(drawn: Inputs, problem: Case) -> Inputs:
    """The inputs that were drawn, with the sizes that they have in a problem.

    Those that it does not have, and that are no data, are left out. Where the problem says which
    values it needs, these are taken.
    """

    def sized(t: Tensor | None, like: Tensor | None) -> Tensor | None:
        if t is None or like is None or t.data is not None:
            return None
        values = t.values if like.values == NORMAL else like.values
        return replace(t, shape=like.shape, values=values)

    return tuple(map(sized, drawn, problem.inputs))


@st.composite
def drawn_by(
    draw: DrawFn,
    rule: Callable[[Draw], T],
    dtype: str,
    degenerate: bool = False,
    sizes: Callable[[int], Sizes] | None = None,
    plain: bool = False,
) -> T:
    """What a rule makes by choices of `Draw`; see `cases`. Some draws are `plain` ones."""
    if sizes is None:
        d = Draw(draw, dtype, degenerate)
    else:
        number = draw(st.integers(0, MANY_NUMBERS))
        plain = plain and number % PLAIN == PLAIN - 1
        d = Draw(draw, dtype, degenerate, sizes(number), plain)
    drawn = rule(d)
    d.finish()
    return drawn


def _draw_operator(cls: type[Op], d: Draw) -> Op:
    rule = _ATTRIBUTES.get(cls)
    drawn: Op = cls() if rule is None else rule(d)
    return drawn


def _entering(
    table: dict[type[Operator], Callable[..., Any]], classes: Sequence[type[Operator]], what: str
) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        for cls in classes:
            if cls in table:
                first, second = (f"{r.__module__}.{r.__qualname__}" for r in (table[cls], rule))
                raise ValueError(
                    f"{first} draws the {what} of {cls.__name__} already; {second} would be a "
                    "second one"
                )
            table[cls] = rule
        return rule

    return enter


def _require(cls: type[Operator]) -> None:
    if cls not in _INPUTS:
        raise LookupError(
            f"nothing draws inputs of {cls.__name__}: decorate a function with "
            f"@inputs({cls.__name__}) (see d5test.strategies.registry) and import its module"
        )
