"""A case from its repr, without evaluating code.

Requirements: nothing is constructed but operators that are given, tensors and the case; nothing is
called, imported or looked up. What is returned can be run: its inputs have been made once.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from d5test.case import Case, Operator, Tensor

CONSTANTS = {"inf": math.inf, "nan": math.nan}
LONGEST = 100_000
"""Characters of a repr that is read at all."""
LARGEST = 10**6
"""Elements of an input."""


def case_from(text: str, operators: Mapping[str, type[Operator]]) -> Case:
    """The case whose repr this is; ValueError with the reason if it is none."""
    if len(text) > LONGEST:
        raise ValueError(f"case: longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        case = _built(tree, {**operators, "Tensor": Tensor, "Case": Case})
    except SyntaxError as error:
        raise ValueError(f"case: not the repr of a case: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("case: brackets are nested too deeply") from None
    if not isinstance(case, Case):
        raise ValueError("case: not the repr of a case: it should begin with Case(")
    _check(case)
    return case


def _check(case: Case) -> None:
    """Raise ValueError unless the case is an operator and inputs that can be made."""
    if not isinstance(case.op, Operator):
        raise ValueError(f"case: {case.op!r:.60} is no operator")
    inputs: Any = case.inputs
    if not isinstance(inputs, tuple) or not isinstance(case.seed, int):
        raise ValueError("case: expected Case(Operator(...), (Tensor(...), ...), seed=0)")
    for tensor in inputs:
        if tensor is None:
            continue
        shape = tensor.shape if isinstance(tensor, Tensor) else None
        if not isinstance(shape, tuple) or not all(
            isinstance(side, int) and 0 <= side <= LARGEST for side in shape
        ):
            raise ValueError(f"case: expected Tensor((2, 3)), not {tensor!r:.60}")
        if math.prod(shape) > LARGEST:
            raise ValueError(f"case: {tensor!r:.60} has more than {LARGEST} elements")
    try:
        case.arrays()
    except Exception as error:  # noqa: BLE001 - whatever it is, the inputs cannot be made
        raise ValueError(f"case: its inputs cannot be made: {error!r:.200}") from None


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
