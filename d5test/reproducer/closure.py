"""A part of some modules with everything that it uses: what is needed to run one function alone.

Requirements: read, never imported, since the framework lives elsewhere; statements stay in their
order. Modules of d5test are followed, frameworks are imported. What cannot be taken apart raises
`Inseparable`.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from d5test.reproducer.module import (
    Inseparable,
    Module,
    assigned,
    binds,
    globals_of,
    is_planned,
    located,
)

DROPPED_BASES = {"ABC", "Generic", "Protocol"}
DROPPED_DECORATORS = {"abstractmethod", "override"}


@dataclass(frozen=True)
class Part:
    """Statements of one module that were taken, in order."""

    module: str
    statements: tuple[str, ...]


class Closure:
    """Grows from some names to everything that they use, over several modules.

    `attributes` are the names by which methods are called from outside.
    """

    def __init__(self, attributes: Iterable[str]) -> None:
        self.attributes = set(attributes)
        self.modules: dict[str, Module] = {}
        self.needed: dict[str, set[str]] = {}

    def module(self, name: str, path: Path | None = None) -> Module:
        """A module, read once; `path` where it cannot be found by its name."""
        if name not in self.modules:
            self.modules[name] = Module(name, path or located(name))
            self.needed[name] = set()
        return self.modules[name]

    def use(self, module: str, text: str) -> None:
        """Need what this text, which stands elsewhere, uses of a module."""
        self._follow(self.module(module), text)

    def parts(self) -> list[Part]:
        """What is needed, a part for each module, those that others import first."""
        while True:
            before = (self._size(), len(self.attributes))
            made = {name: self._part(module) for name, module in list(self.modules.items())}
            if before == (self._size(), len(self.attributes)):
                break
        self._refuse_collisions()
        return [made[name] for name in self._ordered()]

    def _size(self) -> int:
        return sum(len(names) for names in self.needed.values()) + len(self.modules)

    def _part(self, module: Module) -> Part:
        taken: list[str] = []
        for node in module.statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                taken += self._import(module, node)
                continue
            text = self._statement(module, node)
            if text:
                self._follow(module, text)
                taken.append(text)
        return Part(module.name, tuple(taken))

    def _import(self, module: Module, node: ast.Import | ast.ImportFrom) -> list[str]:
        """The import of those names that are needed; nothing where a module is followed."""
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return []
        if isinstance(node, ast.ImportFrom) and node.level:
            raise Inseparable(f"{module.name} imports relatively")
        names = [
            a
            for a in node.names
            if (a.asname or a.name.partition(".")[0]) in self.needed[module.name]
            and (a.asname or set(a.name.split(".")[1:]) <= self.attributes)
        ]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("d5test."):
            for alias in names:
                if alias.asname not in (None, alias.name):
                    raise Inseparable(f"{module.name} imports {alias.name} by another name")
                self.use(node.module or "", alias.name)
            return []
        if not names:
            return []
        if isinstance(node, ast.ImportFrom):
            return [ast.unparse(ast.ImportFrom(node.module, names, 0))]
        return [ast.unparse(ast.Import(names))]

    def _statement(self, module: Module, node: ast.stmt) -> str:
        """The text of a statement if it is needed; empty otherwise."""
        needed = bool(binds(node) & self.needed[module.name])
        if isinstance(node, ast.ClassDef):
            return self._class(module, node) if needed else ""
        if isinstance(node, ast.FunctionDef):
            decorators = node.decorator_list
            dropped = [d for d in decorators if module.about_tables(d) or is_planned(d)]
            return module.source.of(node, tuple(dropped)) if needed else ""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return ""
        if module.about_tables(node) and not needed:
            return ""
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return ""
        if needed or not binds(node) or self._stores_into(module, node):
            return module.source.of(node)
        return ""

    def _stores_into(self, module: Module, node: ast.stmt) -> bool:
        """Whether it is `known[...] = value` or `known.name = value` of something needed."""
        return any(
            not isinstance(target, ast.Name)
            and {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
            & self.needed[module.name]
            for target, _ in assigned(node)
        )

    def _class(self, module: Module, node: ast.ClassDef) -> str:
        """A class with the members that are called for."""
        bases = [b for b in node.bases if ast.unparse(b).rpartition(".")[2] not in DROPPED_BASES]
        backend = self.derives(module, node, "Backend")
        header = f"({', '.join(module.source.expression(b) for b in bases)})" if bases else ""
        members = (self._member(module, member, backend) for member in node.body)
        body = [member for member in members if member] or ["    pass"]
        first = f"{module.source.header(node)}class {node.name}{header}:\n{body[0]}"
        text = first
        for before, member in pairwise(body):
            fields = "def " not in before + member and "\n" not in before + member
            text += ("\n" if fields else "\n\n") + member
        return text

    def _member(self, module: Module, node: ast.stmt, backend: bool) -> str:
        if isinstance(node, ast.FunctionDef):
            special = node.name.startswith("__") and (not backend or node.name == "__init__")
            dropped = tuple(d for d in node.decorator_list if ast.unparse(d) in DROPPED_DECORATORS)
            if dropped or not (special or node.name in self.attributes):
                return ""
            return module.source.of(node, dropped)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return "" if backend else module.source.of(node)
        if backend:
            names = binds(node)
            value = getattr(node, "value", None)
            if value is None or "rows" in names or not names & self.attributes:
                return ""
        return module.source.of(node)

    def derives(self, module: Module, node: ast.ClassDef, ancestor: str) -> bool:
        """Whether a class is `ancestor` or is derived from it, over some modules."""
        if node.name == ancestor:
            return True
        for base in node.bases:
            found = self.resolved(module, base.id) if isinstance(base, ast.Name) else None
            if found is not None and self.derives(*found, ancestor):
                return True
        return False

    def resolved(self, module: Module, name: str) -> tuple[Module, ast.ClassDef] | None:
        """The class of this name, in the module that defines it."""
        node = module.find(name)
        if isinstance(node, ast.ClassDef):
            return module, node
        origin = module.imported(name)
        return None if origin is None else self.resolved(self.module(origin[0]), origin[1])

    def _follow(self, module: Module, text: str) -> None:
        """Need what this text uses."""
        used = globals_of(text)
        self.needed[module.name] |= used & set(module.bound)
        self.attributes.update(
            n.attr
            for n in ast.walk(ast.parse(textwrap.dedent(text)))
            if isinstance(n, ast.Attribute)
        )

    def _refuse_collisions(self) -> None:
        owners: dict[str, str] = {}
        for name, module in self.modules.items():
            for each in self.needed[name]:
                node = module.find(each)
                if isinstance(node, ast.Import | ast.ImportFrom) or node is None:
                    continue
                if owners.setdefault(each, name) != name:
                    raise Inseparable(f"{each} is defined in {owners[each]} and in {name}")

    def _ordered(self) -> Iterator[str]:
        done: set[str] = set()

        def visit(name: str) -> Iterator[str]:
            if name in done:
                return
            done.add(name)
            for node in self.modules[name].statements:
                if isinstance(node, ast.ImportFrom) and node.module in self.modules:
                    yield from visit(node.module)
            yield name

        for name in list(self.modules):
            yield from visit(name)


def standard(statement: str) -> bool:
    """Whether an import is of Python's own library alone."""
    (node,) = ast.parse(statement).body
    names = (
        [node.module or ""] if isinstance(node, ast.ImportFrom)
        else [a.name for a in getattr(node, "names", [])]
    )  # fmt: skip
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in names)
