"""A case from its repr, without evaluating code.

Requirements: nothing is constructed but operators that are given, tensors and the case; nothing is
called, imported or looked up.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from d5test.case import Case, Operator, Tensor

CONSTANTS = {"inf": math.inf, "nan": math.nan}


def case_from(text: str, operators: Mapping[str, type[Operator]]) -> Case:
    """The case whose repr this is; ValueError with the reason if it is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"case: not the repr of a case: {error.msg}") from None
    case = _built(tree, {**operators, "Tensor": Tensor, "Case": Case})
    if not isinstance(case, Case):
        raise ValueError("case: not the repr of a case: it should begin with Case(")
    return case


def _built(node: ast.expr, types: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_built(entry, types) for entry in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _built(node.operand, types)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.Name) and node.id in CONSTANTS:
        return CONSTANTS[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _called(node, node.func.id, types)
    raise ValueError(f"case: {ast.unparse(node)!r} is not allowed in the repr of a case")


def _called(node: ast.Call, name: str, types: Mapping[str, Any]) -> Any:
    if name not in types:
        raise ValueError(f"case: {name!r} is no operator that is known here")
    if any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("case: ** is not allowed in the repr of a case")
    values = [_built(entry, types) for entry in node.args]
    named = {str(k.arg): _built(k.value, types) for k in node.keywords}
    try:
        return types[name](*values, **named)
    except TypeError as error:
        raise ValueError(f"case: {error}") from None
