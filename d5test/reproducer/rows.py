"""Where a backend's module says how it computes an operator: its row, read and never run.

Requirements: the forms that `d5test.backends.base` offers are found: a decorated function, a
table of functions without attributes, a row in a dictionary. The last one counts. What only
running the module would tell raises `Inseparable`.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from d5test.reproducer.closure import Closure
from d5test.reproducer.module import Inseparable, Module, is_planned


@dataclass(frozen=True)
class Callee:
    """What a row calls.

    module       where it stands
    expression   the function, as source text
    attributes   whether it is given the operator besides the tensors
    planned      whether it returns the function of the tensors
    """

    module: Module
    expression: str
    attributes: bool
    planned: bool = False


def callee(closure: Closure, module: Module, backend: str, operator: str) -> Callee:
    """What the class `backend` of a module calls for an operator."""
    found = closure.resolved(module, backend)
    if found is None:
        raise Inseparable(f"{module.name} does not define {backend} by a class statement")
    home, node = found
    for member in node.body:
        value = getattr(member, "value", None)
        if "rows" in _names(member) and isinstance(value, ast.expr):
            row = _in_table(closure, home, value, operator)
            if row is None:
                raise Inseparable(f"the row of {operator} is not written down in {home.name}")
            return row
    for base in node.bases:
        if isinstance(base, ast.Name) and closure.resolved(home, base.id) is not None:
            return callee(closure, home, base.id, operator)
    raise Inseparable(f"{backend} has no rows that are written down")


def _names(member: ast.stmt) -> set[str]:
    if isinstance(member, ast.Assign):
        return {t.id for t in member.targets if isinstance(t, ast.Name)}
    if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
        return {member.target.id}
    return set()


def _in_table(closure: Closure, module: Module, value: ast.expr, operator: str) -> Callee | None:
    """The row in an expression for a table: a name, a dictionary, a call of one, a union."""
    if isinstance(value, ast.Name):
        return _by_name(closure, module, value.id, operator)
    if isinstance(value, ast.Dict):
        return _in_dict(closure, module, value, operator)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return _in_table(closure, module, value.right, operator) or _in_table(
            closure, module, value.left, operator
        )
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("Table", "dict"):
        for keyword in reversed(value.keywords):
            if keyword.arg == operator:
                return _of_row(module, keyword.value)
        return _in_table(closure, module, value.args[0], operator) if value.args else None
    if isinstance(value, ast.Attribute) and ast.unparse(value) in (
        f"{n}.rows" for n in module.bound
    ):
        return callee(closure, module, ast.unparse(value.value), operator)
    raise Inseparable(f"{module.name} makes its rows by {ast.unparse(value)}")


def _in_dict(closure: Closure, module: Module, value: ast.Dict, operator: str) -> Callee | None:
    for key, entry in reversed(list(zip(value.keys, value.values, strict=True))):
        if key is None:
            row = _in_table(closure, module, entry, operator)
            if row is not None:
                return row
        elif isinstance(key, ast.Constant) and key.value == operator:
            return _of_row(module, entry)
    return None


def _by_name(closure: Closure, module: Module, table: str, operator: str) -> Callee | None:
    """The last row for the operator that a module puts into the table of this name."""
    origin = module.imported(table)
    if origin is not None:
        return _by_name(closure, closure.module(origin[0]), origin[1], operator)
    for node in reversed(module.statements):
        row = _in_statement(closure, module, node, table, operator)
        if row is not None:
            return row
    return None


def _in_statement(
    closure: Closure, module: Module, node: ast.stmt, table: str, operator: str
) -> Callee | None:
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            if _registers(decorator, table, operator):
                return Callee(module, node.name, True, any(map(is_planned, node.decorator_list)))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _in_call(module, node.value, table, operator)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if ast.unparse(target) == f"{table}[{operator!r}]" and node.value is not None:
                return _of_row(module, node.value)
            if isinstance(target, ast.Name) and target.id == table and node.value is not None:
                return _in_table(closure, module, node.value, operator)
    elif isinstance(node, ast.For) and module.about_tables(node):
        for statement in _unrolled(module, node, operator):
            row = _in_statement(closure, module, statement, table, operator)
            if row is not None:
                return row
    return None


def _unrolled(module: Module, node: ast.For, operator: str) -> list[ast.stmt]:
    """The body of a loop over rows that are written down, for the row of this operator."""
    names = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    if not isinstance(node.iter, ast.Tuple | ast.List):
        raise Inseparable(f"{module.name} fills a table by {ast.unparse(node)[:60]}")
    for entry in node.iter.elts:
        values = entry.elts if isinstance(entry, ast.Tuple) else [entry]
        if any(isinstance(v, ast.Constant) and v.value == operator for v in values):
            given = dict(zip(map(ast.unparse, names), values, strict=False))
            return [_Substituted(given).visit(copy.deepcopy(part)) for part in node.body]
    return []


class _Substituted(ast.NodeTransformer):
    """Names replaced by the expressions that they stand for."""

    def __init__(self, given: dict[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.given.get(node.id, node)


def _in_call(module: Module, call: ast.Call, table: str, operator: str) -> Callee | None:
    """`table.elementwise({...})`, `table.update({...})` or `table.native(...)(function)`."""
    if _registers(call.func, table, operator) and call.args:
        return _of_call(module, call.args[0])
    method = ast.unparse(call.func)
    if method not in (f"{table}.elementwise", f"{table}.update"):
        return None
    if not call.args or not isinstance(call.args[0], ast.Dict):
        raise Inseparable(f"{module.name} fills {table} by {ast.unparse(call)[:60]}")
    for key, value in zip(call.args[0].keys, call.args[0].values, strict=True):
        if isinstance(key, ast.Constant) and key.value == operator:
            if method.endswith("update"):
                return _of_row(module, value)
            return Callee(module, ast.unparse(value), False)
    return None


def _registers(decorator: ast.expr, table: str, operator: str) -> bool:
    """Whether it is `table.native("Operator", ...)` or `table.composed(...)`."""
    return (
        isinstance(decorator, ast.Call)
        and ast.unparse(decorator.func) in (f"{table}.native", f"{table}.composed")
        and any(isinstance(a, ast.Constant) and a.value == operator for a in decorator.args)
    )


def _of_row(module: Module, value: ast.expr) -> Callee:
    """The call in `Row(call, ...)`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("Row"):
        given = [k.value for k in value.keywords if k.arg == "call"] or value.args
        if given:
            return _of_call(module, given[0])
    raise Inseparable(f"{module.name} makes a row by {ast.unparse(value)[:60]}")


def _of_call(module: Module, value: ast.expr) -> Callee:
    """The function itself, or `planned(function)`."""
    if isinstance(value, ast.Call) and is_planned(value.func):
        return Callee(module, ast.unparse(value.args[0]), True, planned=True)
    return Callee(module, ast.unparse(value), True)
