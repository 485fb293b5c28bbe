"""Whether an exception is of the backend's own code, its framework having no part in it.

A function in C leaves no frame. So the expression that raised is looked at as well: where it holds
anything that may be a framework's, nothing is said. What d5test hands to a row is none of that.
NumPy and the framework only.
"""

import dis
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

PLAIN = sys.stdlib_module_names | {"builtins", "numpy", "d5test"}


def place_in_own_code(trace: TracebackType | None, backend: Any) -> str:
    """`FILE:LINE` of the last frame of the backend's; empty where its framework may have raised.

    d5test's backends are none of those meant: what their rows share stands in d5test too.
    """
    if not hasattr(CodeType, "co_positions"):  # before Python 3.11
        return ""
    own = _package(type(backend).__module__)
    place = ""
    while trace is not None:
        package = _package(trace.tb_frame.f_globals.get("__name__"))
        if package == backend.framework:
            return ""
        if package == own != "d5test":
            values = _held(trace.tb_frame, trace.tb_lasti)
            plain = all(_origin(x) in PLAIN - {backend.framework} | {own} for x in values)
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if plain else ""
        trace = trace.tb_next
    return place


def _held(frame: FrameType, at: int) -> Iterator[Any]:
    """The values of the names in the expression at an instruction, and what they hold."""
    spans = [_span(*positions) for positions in frame.f_code.co_positions()]
    start, end = spans[at // 2]
    for instruction in dis.get_instructions(frame.f_code):
        first, last = spans[instruction.offset // 2]
        if instruction.opname.startswith("LOAD_") and start <= first and last <= end:
            names = instruction.argval
            for name in names if isinstance(names, tuple) else (names,):
                known = (frame.f_locals, frame.f_globals, frame.f_builtins)
                value = next((space[name] for space in known if name in space), None)
                value = list(value.values()) if isinstance(value, dict) else value
                yield from value if isinstance(value, (tuple, list)) else (value,)


def _span(*position: int | None) -> tuple[tuple[int, int], tuple[int, int]]:
    line, end_line, column, end_column = (x or 0 for x in position)
    return (line, column), (end_line, end_column)


def _origin(value: Any) -> str:
    """The package that a value comes from; empty: unknown."""
    if isinstance(value, ModuleType):
        return _package(vars(value).get("__name__"))
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return _package(value.__module__)
    return _package(type(value).__module__)


def _package(module: Any) -> str:
    return str(module or "").partition(".")[0]
