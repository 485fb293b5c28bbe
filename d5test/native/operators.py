"""Native operators, compiled and registered: what `--native` and `compile` make of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from d5test.case import Operator
from d5test.native import compiler, drawing, library, reference
from d5test.native.library import Declared


@dataclass(frozen=True)
class Native:
    """A compiled file: its library, and the operators that it registers, by name."""

    source: Path
    library: Path
    operators: dict[str, type[Operator]]
    declared: dict[str, Declared]


def load(source: str | Path, *, sanitize: bool = False) -> Native:
    """Compile a file, and make its operators drawable.

    Raises `CompileError` with the compiler's words, and `NativeError`, `UnfitReference` or
    `ValueError` with a sentence where file and registration do not fit. What a sanitizer was
    compiled into is declared by a library without: only workers have the sanitizer's runtime.
    """
    source = Path(source)
    plain = compiler.library(source)
    declared = library.declared(plain)
    operators = {name: reference.operator(one, source) for name, one in declared.items()}
    for name, operator in operators.items():
        if issubclass(operator, reference.NativeOperator):
            drawing.enter(operator, declared[name])
    used = compiler.library(source, sanitize=True) if sanitize else plain
    return Native(source, used, operators, declared)


def compile(source: str | Path) -> type[Operator]:  # noqa: A001 (what it does)
    """The operator of a file that registers one, as a class of d5test's operators.

    It can be drawn (`d5test.strategies.cases`), judged by `d5test.check(function, like=op())` and,
    with `--native`, on every backend that has a bridge. Raises as `load` does.
    """
    native = load(source)
    if len(native.operators) != 1:
        names = ", ".join(native.operators)
        raise library.NativeError(f"{source} registers {names}: use d5test.native.operators.load")
    return next(iter(native.operators.values()))
