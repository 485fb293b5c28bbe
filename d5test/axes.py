"""The size of an axis, as a formula's author writes it: `n`, `2*d`, `d//2`, `3`."""

import ast
import operator
from collections.abc import Callable, Mapping

ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b if b else 0,
}
"""What an axis may be computed with: `2*d`, `n+1`, `d//2`."""
SEVERAL = "..."
"""Axes of any number and size, the same in all inputs that have them."""


def axis_of(text: str) -> str:
    """An axis as it was written. Raises `ValueError` for what is no size."""
    if text == SEVERAL:
        return text
    try:
        size_of(text, dict.fromkeys(names_in(text), 1))
    except (SyntaxError, TypeError):
        raise ValueError(
            f"{text!r} is no axis: it is a name, a number, or made of them by + - * // without "
            'spaces, as in "b 2*d"'
        ) from None
    return text


def names_in(axis: str) -> list[str]:
    """The names of which an axis is made."""
    return [node.id for node in ast.walk(ast.parse(axis)) if isinstance(node, ast.Name)]


def size_of(axis: str, sizes: Mapping[str, int]) -> int:
    """The size of an axis, by those of the names in it. Raises `TypeError` for what is no size."""

    def value(node: ast.AST) -> int:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return sizes[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return ARITHMETIC[type(op)](value(left), value(right))
        raise TypeError(axis)

    return value(ast.parse(axis, mode="eval"))
