"""Functions that no module names, lambdas and those within others, as source text.

NumPy and the framework only.
"""

import ast
import linecache
import textwrap
from copy import deepcopy
from functools import lru_cache
from types import CodeType
from typing import Any

Definition = ast.FunctionDef | ast.Lambda


class NoSource(Exception):
    """Code whose definition is not to be found in its file."""


def made(code: CodeType, name: str) -> tuple[str, int]:
    """A statement that binds `name`, and how many defaults that takes.

    It is bound to the function of this code; where that has free variables, or defaults that are
    no constants, to one that makes it of the former and of the values of all defaults. Without
    decorators: those have been applied to the function that has this code. Raises `NoSource`.
    """
    node: Any = deepcopy(definition(code))
    arguments = node.args
    values = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
    taken = 0 if all(isinstance(value, ast.Constant) for value in values) else len(values)
    names = [f"default_{i}" for i in range(taken)]
    if taken:
        fresh = map(ast.Name, names)
        arguments.defaults = [next(fresh) for _ in arguments.defaults]
        arguments.kw_defaults = [d and next(fresh) for d in arguments.kw_defaults]
    parameters = [*code.co_freevars, *names]
    if isinstance(node, ast.Lambda):
        text = ast.unparse(node)
        if not parameters:
            return f"{name} = {text}", 0
        return f"def {name}({', '.join(parameters)}):\n    return {text}", taken
    node.decorator_list = []
    if not parameters:
        node.name = name
        return ast.unparse(node), 0
    body = textwrap.indent(f"{ast.unparse(node)}\nreturn {node.name}", "    ")
    return f"def {name}({', '.join(parameters)}):\n{body}", taken


def definition(code: CodeType) -> Definition:
    """Where a function is defined. Raises `NoSource`."""
    found = [
        node
        for node in _definitions(code.co_filename)
        if getattr(node, "name", "<lambda>") == code.co_name
        and _first_line(node) == code.co_firstlineno
    ]
    if len(found) > 1:
        found = [node for node in found if _holds(node, code)]
    if len(found) != 1:
        raise NoSource(f"{code.co_name} of {code.co_filename}, line {code.co_firstlineno}")
    return found[0]


@lru_cache(maxsize=64)
def _definitions(path: str) -> tuple[Definition, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, Definition))


def _first_line(node: Definition) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(d.lineno for d in decorators)])


def _holds(node: Definition, code: CodeType) -> bool:
    """Whether the code is that of this lambda, and not of another one in its line."""
    if isinstance(node, ast.FunctionDef) or not hasattr(code, "co_positions"):  # Python 3.10
        return False
    body = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    spans = [p for p in code.co_positions() if None not in p and (p[0], p[2]) != (p[1], p[3])]
    return bool(spans) and all(start <= (p[0], p[2]) and (p[1], p[3]) <= end for p in spans)
