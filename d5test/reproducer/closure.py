"""A part of some modules with everything that it uses: what is needed to run one function alone.

Requirements: read, never imported, since the framework lives elsewhere; statements stay in their
order. Modules of d5test are followed, frameworks are imported. What cannot be taken apart raises
`Inseparable`.

Annotations of functions go, and with them the names that they need. Everything else, comments too,
stays as its author wrote it.
"""

import ast
import importlib.util
import re
import symtable
import sys
import textwrap
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path

Edit = tuple[int, int, bytes]
"""Bytes from, to, and what stands there instead."""
EQUALS = re.compile(rb"\s*=\s*")
TABLES = {"Table", "Forms"}
"""What rows are entered into."""
ROWS = {"rows", "forms"}
"""What classes of backends have and a part of one has not: all functions of all operators."""
DROPPED_BASES = {"ABC", "Generic", "Protocol"}
DROPPED_DECORATORS = {"abstractmethod", "override"}


class Inseparable(Exception):
    """The source is not written so that a part of it can be taken out; the text says why."""


class Module:
    """A module's top-level statements and their text. `bound`: the last that binds each name."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.statements = ast.parse(text).body
        self.bound = {bound: node for node in self.statements for bound in binds(node)}
        self._tables = {
            target.id
            for node in self.statements
            for target, value in assigned(node)
            if isinstance(target, ast.Name) and _called(value) in TABLES
        }
        functions = [node for node in self.statements if isinstance(node, ast.FunctionDef)]
        while filling := {f.name for f in functions if self.about_tables(f)} - self._tables:
            self._tables |= filling
        self._content = text.encode()
        lines = self._content.splitlines(keepends=True)
        self._starts = list(accumulate(map(len, lines), initial=0))

    def about_tables(self, node: ast.AST) -> bool:
        """Whether it fills a table of rows, perhaps by a function of this module."""
        return any(isinstance(n, ast.Name) and n.id in self._tables for n in ast.walk(node))

    def text(self, node: ast.stmt, without: tuple[ast.expr, ...] = ()) -> str:
        """The text of a statement, its decorators included but for those in `without`."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators if d not in without)])
        removed = [
            (self._starts[d.lineno - 1], self._starts[d.end_lineno or 0], b"")
            for d in without
            if d.lineno >= first
        ]
        line = self._starts[first - 1]
        before = b"" if decorators else self._content[line : self._start(node)]
        if before.strip():  # behind a semicolon, or on the line of its class
            inner = " " * 4 * before.lstrip().startswith(b"class ")
            margin = before[: len(before) - len(before.lstrip())].decode() + inner
            return margin + self._edited(node, self._start(node))
        text = self._edited(node, line, removed).rstrip()
        return re.sub(r"  # (noqa|type:).*", "", text)

    def expression(self, node: ast.expr) -> str:
        """The text of an expression."""
        return self._edited(node, self._start(node))

    def _edited(self, node: ast.expr | ast.stmt, start: int, edits: Iterable[Edit] = ()) -> str:
        text = self._content[start : self._end(node)]
        for low, high, new in sorted({*self._edits(node), *edits}, reverse=True):
            text = text[: low - start] + new + text[high - start :]
        return text.decode()

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        """Those that take the annotations of functions away."""
        for function in ast.walk(node):
            if isinstance(function, ast.FunctionDef):
                yield from self._unannotated(function)

    def _unannotated(self, function: ast.FunctionDef) -> Iterator[Edit]:
        for part in ast.walk(function):
            if isinstance(part, ast.arg) and part.annotation is not None:
                name_end, end = self._start(part) + len(part.arg.encode()), self._end(part)
                default = EQUALS.match(self._content, end)
                yield (name_end, default.end(), b"=") if default else (name_end, end, b"")
            elif isinstance(part, ast.AnnAssign) and part.value is not None:
                yield self._end(part.target), self._end(part.annotation), b""
        if function.returns is not None:
            arrow = self._content.rindex(b"->", 0, self._start(function.returns))
            before = len(self._content[:arrow].rstrip())
            yield before, self._end(function.returns), b""

    def _start(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        return self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


class Closure:
    """Grows from some names to everything that they use, over several modules.

    `attributes` are the names by which methods are called from outside.
    """

    def __init__(self) -> None:
        self.attributes: set[str] = set()
        self.modules: dict[str, Module] = {}
        self.needed: dict[str, set[str]] = {}

    def module(self, name: str, path: Path | None = None) -> Module:
        """A module, read once; `path` where it cannot be found by its name."""
        if name not in self.modules:
            self.modules[name] = Module(name, (path or located(name)).read_text())
            self.needed[name] = set()
        return self.modules[name]

    def use(self, name: str, text: str) -> None:
        """Need what this text uses of a module."""
        bound = self.module(name).bound.keys()
        self.needed[name] |= globals_of(text) & bound
        nodes = ast.walk(ast.parse(textwrap.dedent(text)))
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        if attributes & ROWS:
            raise Inseparable(f"{name} uses the rows of a backend")
        self.attributes |= attributes

    def parts(self) -> dict[str, list[str]]:
        """The statements that are needed, by module, those that others import first."""
        before = -1
        while before != self._size():
            before = self._size()
            taken = {name: self._taken(module) for name, module in list(self.modules.items())}
        self._refuse_collisions()
        imports = {
            name: [
                node.module
                for node in module.statements
                if isinstance(node, ast.ImportFrom) and node.module in self.modules
            ]
            for name, module in self.modules.items()
        }
        return {name: taken[name] for name in TopologicalSorter(imports).static_order()}

    def _size(self) -> int:
        return sum(map(len, (self.modules, self.attributes, *self.needed.values())))

    def _taken(self, module: Module) -> list[str]:
        taken: list[str] = []
        for node in module.statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                taken += self._import(module, node)
            elif text := self._statement(module, node):
                self.use(module.name, text)
                taken.append(text)
        return taken

    def _import(self, module: Module, node: ast.Import | ast.ImportFrom) -> list[str]:
        """The imports of those names that are needed; nothing where a module is followed."""
        names = [
            a
            for a in node.names
            if (a.asname or a.name.partition(".")[0]) in self.needed[module.name]
            and (a.asname or set(a.name.split(".")[1:]) <= self.attributes)
        ]
        if isinstance(node, ast.Import):
            return [ast.unparse(ast.Import([alias])) for alias in names]
        if node.module == "__future__":
            return []
        if node.level:
            raise Inseparable(f"{module.name} imports relatively")
        if not (node.module or "").startswith("d5test."):
            return [ast.unparse(ast.ImportFrom(node.module, [alias], 0)) for alias in names]
        for alias in names:
            if alias.asname not in (None, alias.name):
                raise Inseparable(f"{module.name} imports {alias.name} by another name")
            self.use(node.module or "", alias.name)
        return []

    def _statement(self, module: Module, node: ast.stmt) -> str:
        """The text of a statement if it is needed; empty otherwise."""
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return ""
        if isinstance(node, ast.Delete):  # of a name that is not needed, or was
            return ""
        if binds(node) & self.needed[module.name]:
            if isinstance(node, ast.ClassDef):
                return self._class(module, node)
            decorators = getattr(node, "decorator_list", [])
            dropped = [d for d in decorators if module.about_tables(d) or _is_planned(d)]
            return module.text(node, tuple(dropped))
        definition = isinstance(node, ast.ClassDef | ast.FunctionDef)
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if definition or docstring or module.about_tables(node):
            return ""
        return "" if binds(node) and not self._stores_into(module, node) else module.text(node)

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
        kept = [b for b in node.bases if ast.unparse(b).rpartition(".")[2] not in DROPPED_BASES]
        bases = f"({', '.join(map(module.expression, kept))})" if kept else ""
        backend = self._is_backend(module, node)
        decorators = "".join(f"@{module.expression(d)}\n" for d in node.decorator_list)
        whole = any(self._is_foreign(module, base) for base in node.bases)  # which calls methods
        members = (
            module.text(member) if whole else self._member(module, member, backend)
            for member in node.body
        )  # fmt: skip
        body = [member for member in members if member] or ["    pass"]
        text = f"{decorators}class {node.name}{bases}:\n{body[0]}"
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
            return module.text(node, dropped)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return "" if backend else module.text(node)
        names = binds(node)
        unused = not names & self.attributes or names & ROWS
        if backend and (getattr(node, "value", None) is None or unused):
            return ""
        return module.text(node)

    def _is_foreign(self, module: Module, base: ast.expr) -> bool:
        """Whether a class is a framework's own: neither d5test's, nor the standard library's."""
        node = module.bound.get(ast.unparse(base).partition(".")[0])
        if not isinstance(node, ast.Import | ast.ImportFrom):
            return False
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [node.names[0].name]
        package = names[0].partition(".")[0]
        return package != "d5test" and package not in sys.stdlib_module_names

    def _is_backend(self, module: Module, node: ast.ClassDef) -> bool:
        """Whether a class is `Backend` or is derived from it, over some modules."""
        if node.name == "Backend":
            return True
        bases = [self.resolved(module, b.id) for b in node.bases if isinstance(b, ast.Name)]
        return any(self._is_backend(*base) for base in bases if base is not None)

    def resolved(self, module: Module, name: str) -> tuple[Module, ast.ClassDef] | None:
        """The class of this name, in the module that defines it."""
        node = module.bound.get(name)
        if isinstance(node, ast.ClassDef):
            return module, node
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("d5test."):
            return None
        original = next(a.name for a in node.names if (a.asname or a.name) == name)
        return self.resolved(self.module(node.module or ""), original)

    def _refuse_collisions(self) -> None:
        owners: dict[str, str] = {}
        for name, module in self.modules.items():
            for bound in self.needed[name]:
                if isinstance(module.bound[bound], ast.Import | ast.ImportFrom):
                    continue
                if owners.setdefault(bound, name) != name:
                    raise Inseparable(f"{bound} is defined in {owners[bound]} and in {name}")


def _is_planned(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).rpartition(".")[2] == "planned"


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

    def used(table: symtable.SymbolTable, top: bool) -> Iterator[str]:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from used(child, False)

    return set(used(symtable.symtable(textwrap.dedent(text), "part", "exec"), True))


def assigned(node: ast.stmt) -> list[tuple[ast.expr, ast.expr | None]]:
    """What a statement assigns to, each with its value if it has one of its own."""
    if isinstance(node, ast.Assign):
        every: list[tuple[ast.expr, ast.expr | None]] = []
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                every += zip(target.elts, node.value.elts, strict=False)
            else:
                every.append((target, node.value))
        return every
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return [(node.target, node.value)]
    return []


def _called(node: ast.expr | None) -> str:
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def binds(node: ast.stmt) -> set[str]:
    """The names that a statement binds in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Import | ast.ImportFrom):
            names |= {a.asname or a.name.partition(".")[0] for a in part.names}
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            names.add(part.name)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
    return names
