"""Changes of a formula: what may stand in place of a node of the references' source.

term     an addend, a factor, a divisor, an exponent, a function or an accumulation is left out
sign     + for -, a result negated, largest for smallest, a comparison turned
epsilon  outside of the root, or ten times as large
axis     another axis or fewer, a transposition left out
number   a constant 1% larger
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

Change = tuple[str, ast.AST]

FUNCTIONS = frozenset(
    {"sqrt", "exp", "log", "tanh", "abs", "erf", "sign", "sigmoid", "unbroadcast"}
)
"""Functions of which the argument alone is a value of the same shape, or nearly."""
OPPOSITES = {
    "max": "min", "maximum": "minimum", "argmax": "argmin", "less": "greater", "floor": "ceil",
}  # fmt: skip
OPPOSITES |= {there: here for here, there in OPPOSITES.items()}
TURNED: dict[type, type] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "var", "any", "argmax", "squeeze"})
ALONG = {"expand_dims": 1, "stack": 1, "concatenate": 1, "take_along_axis": 2, "split": 2,
         "put_along_axis": 3}  # fmt: skip
"""Functions that take an axis, and where."""


def changes(node: ast.AST) -> Iterator[Change]:
    """Every change at this very node."""
    for rule in RULES.get(type(node), ()):
        yield from rule(node)


def sums_and_products(node: ast.BinOp) -> Iterator[Change]:
    left, op, right = node.left, node.op, node.right
    if isinstance(op, ast.Add | ast.Sub):
        turned = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
        yield "sign", ast.BinOp(left, turned, right)
        yield "term", left
        yield "term", right if isinstance(op, ast.Add) else negative(right)
    elif isinstance(op, ast.Mult | ast.BitAnd):
        yield "term", left
        yield "term", right
    elif isinstance(op, ast.Div):
        yield "term", left
        if not (isinstance(left, ast.Constant) and left.value == 1):
            yield "term", ast.BinOp(ast.Constant(1), ast.Div(), right)
    elif isinstance(op, ast.Pow):
        yield "term", left


def negations(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield "sign", node.operand
    if isinstance(node.op, ast.Invert):
        yield "sign", node.operand


def comparisons(node: ast.Compare) -> Iterator[Change]:
    (op, *others) = node.ops
    if not others and type(op) in TURNED:
        yield "sign", ast.Compare(node.left, [TURNED[type(op)]()], node.comparators)


def accumulations(node: ast.AugAssign) -> Iterator[Change]:
    yield "term", ast.Assign([node.target], node.value)
    if isinstance(node.op, ast.Add):
        yield "sign", ast.AugAssign(node.target, ast.Sub(), node.value)


def results(node: ast.Return) -> Iterator[Change]:
    for value in _negated(node.value):
        yield "sign", ast.Return(value)


def lambdas(node: ast.Lambda) -> Iterator[Change]:
    for value in _negated(node.body):
        yield "sign", ast.Lambda(node.args, value)


def _negated(value: ast.expr | None) -> Iterator[ast.expr]:
    """The value with a minus before it; of a tuple, before one member after the other."""
    if isinstance(value, ast.Tuple):
        for i, item in enumerate(value.elts):
            if not isinstance(item, ast.Starred | ast.Constant):
                items = [*value.elts]
                items[i] = negative(item)
                yield ast.Tuple(items, ast.Load())
    elif value is not None and not isinstance(value, ast.Constant | ast.UnaryOp):
        yield negative(value)


def calls(node: ast.Call) -> Iterator[Change]:
    name = _name(node.func)
    if name in FUNCTIONS and node.args:
        yield "term", node.args[0]
    if name in OPPOSITES:
        yield "sign", ast.Call(renamed(node.func, OPPOSITES[name]), node.args, node.keywords)
    if name in ("mean", "sum") and isinstance(node.func, ast.Attribute):
        other = "sum" if name == "mean" else "mean"
        yield "term", ast.Call(renamed(node.func, other), node.args, node.keywords)
    if name == "sqrt" and isinstance(node.args[0], ast.BinOp) and "epsilon" in ast.unparse(node):
        inside = node.args[0]
        root = ast.Call(node.func, [inside.left], [])
        yield "epsilon", ast.BinOp(root, inside.op, inside.right)
    if name == "staticmethod" and _name(node.args[0]) in OPPOSITES:
        argument = node.args[0]
        other = renamed(argument, OPPOSITES[_name(argument)])
        yield "sign", ast.Call(node.func, [other], [])
    yield from _rows(node)
    yield from _along_axes(node, name)


def _rows(node: ast.Call) -> Iterator[Change]:
    """In the row of a table, a function that is named: its negative."""
    for i, argument in enumerate(node.args):
        if _name(node.func) in ("unary", "binary") and isinstance(
            argument, ast.Attribute | ast.Name
        ):
            arguments = [*node.args]
            x = ast.arguments([], [], ast.arg("xs"), [], [], None, [])
            xs = ast.Starred(ast.Name("xs", ast.Load()), ast.Load())
            arguments[i] = ast.Lambda(x, negative(ast.Call(argument, [xs], [])))
            yield "sign", ast.Call(node.func, arguments, node.keywords)


def _along_axes(node: ast.Call, name: str) -> Iterator[Change]:
    method = isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
    if name in ("transpose", "swapaxes") and method:
        yield "axis", node.func.value  # type: ignore[attr-defined]
        if len(node.args) > 1 and name == "transpose":
            yield "axis", ast.Call(node.func, [*node.args[1::-1], *node.args[2:]], [])
    place = 0 if method and name in REDUCTIONS else 1 if name in REDUCTIONS else ALONG.get(name)
    if place is not None and place < len(node.args):
        for axis in other_axes(node.args[place]):
            arguments = [*node.args]
            arguments[place] = axis
            yield "axis", ast.Call(node.func, arguments, node.keywords)
    for i, keyword in enumerate(node.keywords):
        if keyword.arg == "axis":
            for axis in other_axes(keyword.value):
                keywords = [*node.keywords]
                keywords[i] = ast.keyword("axis", axis)
                yield "axis", ast.Call(node.func, node.args, keywords)


def other_axes(axis: ast.expr) -> Iterator[ast.expr]:
    """Other axes than this one, or fewer than these."""
    try:
        value = ast.literal_eval(axis)
    except ValueError:
        if isinstance(axis, ast.Attribute):  # self.axis: one axis
            yield ast.Constant(0)
            yield negative(ast.Constant(1))
        else:
            yield ast.Subscript(axis, ast.Slice(ast.Constant(1)), ast.Load())
            yield ast.Subscript(axis, ast.Slice(None, ast.Constant(-1)), ast.Load())
        return
    if isinstance(value, int):
        yield ast.Constant(0 if value else 1)
        yield negative(ast.Constant(2 if value == -1 else 1))
    elif isinstance(value, tuple) and value:
        yield ast.parse(repr(value[1:]), mode="eval").body
        yield ast.parse(repr((value[0] + 1, *value[1:])), mode="eval").body


def attributes(node: ast.Attribute) -> Iterator[Change]:
    if node.attr == "T":
        yield "axis", node.value
    if node.attr == "epsilon":
        yield "epsilon", ast.BinOp(node, ast.Mult(), ast.Constant(10))


def names(node: ast.Name) -> Iterator[Change]:
    if node.id == "epsilon" and isinstance(node.ctx, ast.Load):
        yield "epsilon", ast.BinOp(node, ast.Mult(), ast.Constant(10))


def numbers(node: ast.Constant) -> Iterator[Change]:
    if isinstance(node.value, float) and node.value:
        yield "number", ast.Constant(node.value * 1.01)


def negative(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.USub(), node)


def renamed(function: ast.expr, name: str) -> ast.expr:
    if isinstance(function, ast.Attribute):
        return ast.Attribute(function.value, name, ast.Load())
    return ast.Name(name, ast.Load())


def _name(function: ast.AST) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "np"


RULES: dict[type[ast.AST], tuple[Callable[[Any], Iterator[Change]], ...]] = {
    ast.BinOp: (sums_and_products,),
    ast.UnaryOp: (negations,),
    ast.Compare: (comparisons,),
    ast.AugAssign: (accumulations,),
    ast.Return: (results,),
    ast.Lambda: (lambdas,),
    ast.Call: (calls,),
    ast.Attribute: (attributes,),
    ast.Name: (names,),
    ast.Constant: (numbers,),
}
