"""`--native=FILE`: compiled before anything is collected, and handed to the workers.

Requirements: a file that cannot be compiled is the compiler's message and exit status 4; without
the option nothing of `d5test.native` is imported.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from d5test.client.registry import Spec, resolve

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:print_legend=0:"
    'fast_unwind_on_fatal=1:malloc_context_size=4:stack_trace_format="    #%n %L"',
    "UBSAN_OPTIONS": "print_stacktrace=0",
}
"""Leaks are found by what each call keeps: at its end Python itself keeps much."""


def loaded(files: Iterable[str], *, sanitize: bool) -> tuple[Any, ...]:
    """The compiled files. UsageError with what is wrong in the first that is."""
    if not files:
        return ()
    from d5test.native import compiler, library, operators

    try:
        return tuple(operators.load(file, sanitize=sanitize) for file in files)
    except compiler.CompileError as error:
        raise pytest.UsageError(str(error)) from None
    except (library.NativeError, operators.UnfitReference, ValueError, OSError) as error:
        raise pytest.UsageError(f"--native: {error}") from None


def spec(name: str, natives: Sequence[Any]) -> Spec:
    """The backend that is meant, with rows for native operators where it has a bridge."""
    backend = resolve(name)
    if not natives:
        return backend
    from d5test.native.bridges import BRIDGED

    return Spec(backend.name, BRIDGED.get(backend.target, backend.target), backend.python)


def environment(natives: Sequence[Any], *, sanitize: bool) -> dict[str, str]:
    """The variables of a worker that has them."""
    if not natives:
        return {}
    from d5test.native import bridges, compiler

    variables = bridges.environment(native.library for native in natives)
    if sanitize:
        variables |= {"LD_PRELOAD": compiler.preloaded(), **SANITIZERS}
    return variables


def problems(natives: Sequence[Any]) -> list[Any]:
    """What is timed of them."""
    if not natives:
        return []
    from d5test.native.operators import problems

    return [
        problem
        for native in natives
        for name, operator in native.operators.items()
        for problem in problems(operator, native.declared[name])
    ]
