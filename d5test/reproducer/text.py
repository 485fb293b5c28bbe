"""Source text of statements, as an older Python also reads it.

Annotations of functions go, and with them the names that they need; `zip(strict=)` and unions in
`isinstance`, which Python 3.9 lacks, are rewritten. Everything else, comments too, stays as its
author wrote it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

Edit = tuple[int, int, bytes]
"""Bytes from, to, and what stands there instead."""


class Source:
    """A module's text and its statements."""

    def __init__(self, text: str) -> None:
        self.content = text.encode()
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in self.content.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.stmt, without: tuple[ast.expr, ...] = ()) -> str:
        """The text of a statement, its decorators included but for those in `without`."""
        first = node.lineno
        decorators = getattr(node, "decorator_list", [])
        kept = [d for d in decorators if d not in without]
        if kept:
            first = min(first, *(d.lineno for d in kept))
        start = self._starts[first - 1]
        edits = [*self._edits(node), *(self._removed(d) for d in without if d.lineno >= first)]
        text = self._edited(start, self._end(node), edits).decode().rstrip()
        return re.sub(r"  # (noqa|type:).*", "", text)

    def expression(self, node: ast.expr) -> str:
        """The text of an expression."""
        return self._edited(self._start(node), self._end(node), list(self._edits(node))).decode()

    def header(self, node: ast.ClassDef) -> str:
        """The decorators of a class, each on its line."""
        return "".join(f"@{self.expression(d)}\n" for d in node.decorator_list)

    def _edited(self, start: int, end: int, edits: list[Edit]) -> bytes:
        text = self.content[start:end]
        for low, high, new in sorted(set(edits), reverse=True):
            text = text[: low - start] + new + text[high - start :]
        return text

    def _edits(self, node: ast.AST) -> Iterator[Edit]:
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef):
                yield from self._unannotated(part)
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
                if part.func.id == "zip":
                    yield from self._not_strict(part)
                elif part.func.id == "isinstance" and len(part.args) == 2:
                    yield from self._no_union(part.args[1])

    def _unannotated(self, node: ast.FunctionDef) -> Iterator[Edit]:
        given = node.args
        plain = [*given.posonlyargs, *given.args]
        defaults: dict[ast.arg, ast.expr | None] = {
            **dict(zip(reversed(plain), reversed(given.defaults), strict=False)),
            **dict(zip(given.kwonlyargs, given.kw_defaults, strict=True)),
        }
        for arg in (*plain, *given.kwonlyargs, given.vararg, given.kwarg):
            if arg is None or arg.annotation is None:
                continue
            name_end = self._start(arg) + len(arg.arg.encode())
            default = defaults.get(arg)
            if default is None:
                yield name_end, self._end(arg.annotation), b""
            else:
                yield name_end, self._start(default), b"="
        if node.returns is not None:
            arrow = self.content.rindex(b"->", 0, self._start(node.returns))
            before = len(self.content[:arrow].rstrip())
            yield before, self._end(node.returns), b""
        inside = [n for statement in node.body for n in ast.walk(statement)]
        for part in inside:
            if isinstance(part, ast.AnnAssign) and part.value is not None:
                yield self._end(part.target), self._end(part.annotation), b""

    def _not_strict(self, node: ast.Call) -> Iterator[Edit]:
        for keyword in node.keywords:
            if keyword.arg == "strict":
                comma = self.content.rindex(b",", 0, self._start(keyword))
                yield comma, self._end(keyword), b""

    def _no_union(self, node: ast.expr) -> Iterator[Edit]:
        members: list[ast.expr] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            members.insert(0, node.right)
            node = node.left
        if members:
            parts = [self.expression(m) for m in (node, *members)]
            yield self._start(node), self._end(members[-1]), f"({', '.join(parts)})".encode()

    def _removed(self, decorator: ast.expr) -> Edit:
        last = decorator.end_lineno or decorator.lineno
        return self._starts[decorator.lineno - 1], self._starts[last], b""

    def _start(self, node: ast.expr | ast.arg | ast.keyword) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
