"""The source of a module, by the names that its statements bind. Read, never imported."""

from __future__ import annotations

import ast
import importlib.util
import symtable
import textwrap
from pathlib import Path

from d5test.reproducer.text import Source


class Inseparable(Exception):
    """The source is not written so that a part of it can be taken out; the text says why."""


class Module:
    """A module's top-level statements by the names that they bind."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.source = Source(path.read_text())
        self.statements = self.source.tree.body
        self.tables = {
            target.id
            for node in self.statements
            for target, value in assigned(node)
            if isinstance(target, ast.Name) and _called(value) == "Table"
        }
        self.bound: dict[str, ast.stmt] = {}
        for node in self.statements:
            for bound in binds(node):
                self.bound[bound] = node

    def find(self, name: str) -> ast.stmt | None:
        """The last statement that binds a name."""
        return self.bound.get(name)

    def imported(self, name: str) -> tuple[str, str] | None:
        """(module, name there) of a name that is imported from a module of d5test."""
        node = self.find(name)
        if not isinstance(node, ast.ImportFrom) or node.level:
            return None
        if not (node.module or "").startswith("d5test."):
            return None
        return node.module or "", next(a.name for a in node.names if (a.asname or a.name) == name)

    def about_tables(self, node: ast.AST) -> bool:
        """Whether a statement fills a table of rows."""
        return any(isinstance(n, ast.Name) and n.id in self.tables for n in ast.walk(node))


def located(name: str) -> Path:
    """The file of a module, without importing it."""
    if name.startswith("d5test."):
        root = Path(__file__).resolve().parents[1]
        path = root.joinpath(*name.split(".")[1:])
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    else:
        path = Path.cwd().joinpath(*name.split(".")).with_suffix(".py")
        if not path.is_file():
            spec = importlib.util.find_spec(name)
            path = Path(spec.origin) if spec is not None and spec.origin else path
    if not path.is_file():
        raise Inseparable(f"the source of {name} is not to be found")
    return path


def globals_of(text: str) -> set[str]:
    """The names that this text uses and does not bind within a function or class of its own."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable, top: bool) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                found.add(symbol.get_name())
        for child in table.get_children():
            visit(child, False)

    visit(symtable.symtable(textwrap.dedent(text), "part", "exec"), True)
    return found


def is_planned(node: ast.expr) -> bool:
    """Whether it is `planned`, of `d5test.backends.base`."""
    return ast.unparse(node).rpartition(".")[2] == "planned"


def assigned(node: ast.stmt) -> list[tuple[ast.expr, ast.expr | None]]:
    """What a statement assigns to, each with its value if it has one of its own."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return [(node.target, node.value)]
    return []


def _called(node: ast.expr | None) -> str:
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def binds(node: ast.stmt) -> set[str]:
    """The names that a statement binds in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Import | ast.ImportFrom):
            found |= {a.asname or a.name.partition(".")[0] for a in part.names}
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            found.add(part.name)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            found.add(part.id)
    return found
