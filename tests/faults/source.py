"""The source of the references: which functions an operator runs, and a module with one change.

A change may stand in a module that the operator's own imports (windows, broadcasting): then
the operator's module is made anew on top of the changed one.
"""

import ast
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from d5test.case import Operator
from d5test.reference import operators

FOLDER = Path(operators.__file__).parent
Way = tuple[tuple[str, int | None], ...]
"""From the root of a tree to a node: fields, and positions in those that are lists."""

UNCHANGED = ("annotation", "returns", "decorator_list", "args", "type_params")
"""Fields in which there is no formula."""


@cache
def tree(module: str) -> ast.Module:
    """The source of a module of references."""
    return ast.parse((FOLDER / f"{module}.py").read_text())


def executed(run: Callable[[], None]) -> frozenset[tuple[str, int]]:
    """Module and first line of every function of the references that `run` calls."""
    found: set[tuple[str, int]] = set()
    seen: set[CodeType] = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code not in seen:
            seen.add(frame.f_code)
            path = Path(frame.f_code.co_filename)
            if path.parent == FOLDER:
                found.add((path.stem, frame.f_code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        run()
    finally:
        sys.setprofile(before)
    return frozenset(found)


def formulas(
    operator: type[Operator], functions: frozenset[tuple[str, int]]
) -> Iterator[tuple[str, str, Way, ast.AST]]:
    """Module, name, path and node of each piece of source that makes the operator what it is.

    Functions that were executed; and what stands under the operator's own name: the row of a
    table, the assignments in its class.
    """
    home = operator.__module__.rpartition(".")[2]
    for module in sorted({home, *(module for module, _ in functions)}):
        for path, node in descendants(tree(module)):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if (module, first) in functions:
                    yield module, node.name, path, node
            elif module != home:
                continue
            elif isinstance(node, ast.Assign) and _named(node, operator.__name__):
                yield module, operator.__name__, path, node
            elif isinstance(node, ast.ClassDef) and node.name == operator.__name__:
                for i, statement in enumerate(node.body):
                    if isinstance(statement, ast.Assign):
                        yield module, operator.__name__, (*path, ("body", i)), statement


def _named(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def descendants(node: ast.AST, path: Way = ()) -> Iterator[tuple[Way, ast.AST]]:
    """`node` and all below it, each with its path; annotations and decorators left out."""
    yield path, node
    for field, value in ast.iter_fields(node):
        if field in UNCHANGED and not isinstance(node, ast.Call):
            continue
        if isinstance(value, ast.AST):
            yield from descendants(value, (*path, (field, None)))
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from descendants(item, (*path, (field, i)))


def replaced(node: Any, path: Way, new: ast.AST) -> Any:
    """A copy of `node` in which `new` stands at `path`; what is not on the way is shared."""
    if not path:
        return ast.fix_missing_locations(ast.copy_location(copy.copy(new), node))
    (field, i), *rest = path
    made = copy.copy(node)
    value = getattr(node, field)
    if i is None:
        setattr(made, field, replaced(value, tuple(rest), new))
    else:
        items = [*value]
        items[i] = replaced(value[i], tuple(rest), new)
        setattr(made, field, items)
    return made


def changed(operator: type[Operator], module: str, path: Way, new: ast.AST) -> type[Operator]:
    """The operator with `new` at `path` of `module`."""
    package, _, home = operator.__module__.rpartition(".")
    name = f"{package}.{module}"
    made = _executed(name, replaced(tree(module), path, new))
    if module != home:
        original = import_module(name)
        sys.modules[name] = made
        try:
            made = _executed(operator.__module__, tree(home))
        finally:
            sys.modules[name] = original
    found: type[Operator] = getattr(made, operator.__name__)
    return found


def _executed(name: str, source: ast.Module) -> ModuleType:
    module = ModuleType(name)
    exec(compile(source, f"<{name}, changed>", "exec"), module.__dict__)
    return module


def text(node: ast.AST, most: int = 60) -> str:
    """The source of a node, in one line."""
    line = " ".join(ast.unparse(ast.fix_missing_locations(copy.copy(node))).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def line_of(module: str, path: Sequence[Any]) -> int:
    """The line in which a node begins."""
    node: Any = tree(module)
    line = 1
    for field, i in path:
        node = getattr(node, field) if i is None else getattr(node, field)[i]
        line = getattr(node, "lineno", line)
    return line
