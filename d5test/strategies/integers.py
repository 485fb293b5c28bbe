"""Cases of integers and booleans: an operator's own cases, with such numbers as their data.

What ONNX's operators do with integers is one of three things: they move them, compare them, or
compute with them. Of the others that its schemas allow it does not say how results are rounded.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from d5test.case import Case, Operator, Tensor, is_float
from d5test.dtypes import WHOLE
from d5test.reference.operators import (
    comparison,
    elementwise,
    indexing,
    linear,
    movement,
    reductions,
    selection,
    windows,
)
from d5test.strategies.registry import cases

Regimes = tuple[tuple[Any, ...], ...]

MOVED: Regimes = (("bits",), ("below", 3))
COMPARED: Regimes = (("whole",), ("akin",), ("endings",), ("below", 3))
"""Of all magnitudes; neighbours, which float64 or one word may not tell apart; those of which a
narrower dtype tells none apart; equal ones."""
COMPUTED: Regimes = (("whole", 1, 4), ("whole", 2, 4), ("below", 4))
"""Sums of the first fit into the dtype, and products of the second."""

BINARY: tuple[type[Operator], ...] = (
    elementwise.Add, elementwise.Div, elementwise.Mod, elementwise.Mul, elementwise.Pow,
    elementwise.Sub, linear.MatMul,
)  # fmt: skip
OPERATORS: Mapping[type[Operator], Regimes] = {
    **dict.fromkeys(
        (
            elementwise.Identity, indexing.Compress, indexing.GatherElements, indexing.GatherND,
            indexing.OneHot, indexing.TensorScatter, movement.CenterCropPad, movement.Concat,
            movement.DepthToSpace, movement.Expand, movement.Flatten, movement.Gather,
            movement.Pad, movement.Reshape, movement.ReverseSequence, movement.Slice,
            movement.SpaceToDepth, movement.Split, movement.Squeeze, movement.Tile,
            movement.Transpose, movement.Trilu, movement.Unsqueeze, movement.Where,
        ),
        MOVED,
    ),
    **dict.fromkeys(
        (
            comparison.Equal, comparison.Greater, comparison.GreaterOrEqual, comparison.Less,
            comparison.LessOrEqual, elementwise.Clip, elementwise.Max, elementwise.Min,
            elementwise.Relu, elementwise.Sign, indexing.ArgMax, indexing.ArgMin, indexing.TopK,
            reductions.ReduceMax, reductions.ReduceMin, selection.NonZero, selection.Unique,
            windows.MaxPool,
        ),
        COMPARED,
    ),
    **dict.fromkeys(
        (
            *BINARY, elementwise.Abs, elementwise.Neg, elementwise.PRelu,
            indexing.ScatterElements, indexing.ScatterND, linear.Einsum,
            reductions.CumProd, reductions.CumSum, reductions.ReduceL1, reductions.ReduceProd,
            reductions.ReduceSum, reductions.ReduceSumSquare, windows.Col2Im,
        ),
        COMPUTED,
    ),
}  # fmt: skip
"""The values of their data."""
OPEN = frozenset({"Gemm", "GridSample", "ReduceL2", "ReduceMean", "Resize", "Shrink"})
"""Operators that ONNX has for integers, of which it does not say how results are rounded."""

DIVISORS: Regimes = (("divisors",), ("divisors", 2), ("divisors", 4))
DIVIDENDS: Regimes = (("bits",), ("whole", 1, 4), ("below", 4))
OF_INPUTS: Mapping[type[Operator], Mapping[int, Regimes]] = {
    elementwise.Div: {0: DIVIDENDS, 1: DIVISORS},
    elementwise.Mod: {0: DIVIDENDS, 1: DIVISORS},
    elementwise.Pow: {1: (("below", 4),)},
}
"""Other values of an input: no zero divides, and no power is a fraction."""
DATA: Mapping[type[Operator], tuple[int, ...]] = {
    indexing.OneHot: (2,),
    movement.Where: (1, 2),
    indexing.ScatterElements: (0, 2),
    indexing.ScatterND: (0, 2),
    **dict.fromkeys((*BINARY, elementwise.PRelu), (0, 1)),
    linear.Einsum: (0, 1, 2),
}
"""The positions of the inputs that are data, where others than the first are."""
INDICES: tuple[type[Operator], ...] = (indexing.ArgMax, indexing.ArgMin, selection.NonZero)
"""Operators of whose outputs none has the dtype of the data."""
WIDENING: tuple[type[Operator], ...] = (
    linear.Einsum, reductions.CumProd, reductions.CumSum, reductions.ReduceL1,
    reductions.ReduceProd, reductions.ReduceSum, reductions.ReduceSumSquare,
)  # fmt: skip
"""Operators whose results some frameworks have in a wider dtype than the data."""
USUAL = 3
"""The first so many are drawn twice as often as the others: the numbers of networks."""


def data_of(operator: type[Operator]) -> tuple[int, ...]:
    """The positions of the inputs that are data; of any number of inputs the first."""
    return DATA.get(operator, (0,))


def allowed(operator: type[Operator]) -> tuple[str, ...]:
    """The dtypes of integers and booleans that ONNX has for the data of an operator."""
    from onnx import defs  # slow to import, and needed here alone

    domain, name = operator.node_type()
    schema: Any = defs.get_schema(name, domain=domain)
    data = schema.inputs[data_of(operator)[0]].type_str
    (types,) = (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == data)
    return tuple(dtype for dtype in WHOLE if f"tensor({dtype})" in types)


def of_integers(operator: type[Operator], dtype: str, **choices: Any) -> SearchStrategy[Case]:
    """Cases of an operator, with data of one of the dtypes that are `allowed`."""
    return _with_integers(operator, cases(operator, dtype, **choices))


@st.composite
def _with_integers(draw: DrawFn, operator: type[Operator], drawn: SearchStrategy[Case]) -> Case:
    case = draw(drawn)
    dtypes = allowed(operator)
    dtype = draw(st.sampled_from((*dtypes, *(d for d in WHOLE[:USUAL] if d in dtypes))))
    common, own = draw(st.sampled_from(OPERATORS[operator])), OF_INPUTS.get(operator, {})
    again = [None if t is None else t.same_as for t in case.inputs]
    inputs: list[Tensor | None] = []
    for i, t in enumerate(case.inputs):
        place = again.index(i) if i in again else i
        if t is None:
            inputs.append(None)
        elif t.same_as is not None:
            earlier = inputs[t.same_as]
            inputs.append(earlier and replace(earlier, same_as=t.same_as))
        elif place in own or is_float(t.dtype):
            values = draw(st.sampled_from(own[place])) if place in own else common
            kind = dtype if is_float(t.dtype) else t.dtype
            values = ("mask",) if kind == "bool" else values
            inputs.append(replace(t, dtype=kind, values=values, data=None))
        else:
            inputs.append(t)
    return replace(case, inputs=tuple(inputs))
