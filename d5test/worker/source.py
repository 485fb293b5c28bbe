"""Values as source text: arguments, functions, and how a row is called.

The framework's own functions and constants are written by their public names. NumPy and the
framework only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from d5test.backends.base import Always, planned

DEPTH = 3
"""How deep in a package its public modules are searched for the names of its functions."""

Function = tuple[str, str, str]
"""Where a function of a row's stands: file, module and name."""


class Unwritable(Exception):
    """A value that has no source text."""


class Writer:
    """Writes values; `names` has those of the framework by identity, tensors are x0, x1, ..."""

    def __init__(self, names: Mapping[int, str], tensors: Sequence[Any] = ()) -> None:
        self.functions: list[Function] = []
        """Those that what was written uses, besides the framework's."""
        self._names, self._tensors = names, tensors

    def value(self, value: Any) -> str:
        """Raises `Unwritable`."""
        for i, tensor in enumerate(self._tensors):
            if value is tensor:
                return f"x{i}"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if np.isfinite(value) else f'float("{value}")'
        if type(value) is tuple:
            return f"({', '.join(map(self.value, value))}{',' * (len(value) == 1)})"
        if type(value) is list:
            return f"[{', '.join(map(self.value, value))}]"
        if type(value) is dict:
            pairs = (f"{self.value(key)}: {self.value(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self.value, parts))})"
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
            return f"np.array({self.value(value.tolist())}, {value.dtype.name!r})"
        return self.function(value)

    def function(self, value: Any) -> str:
        """The framework's, a row's own, or a `partial` of one. Raises `Unwritable`."""
        if id(value) in self._names:
            return self._names[id(value)]
        if isinstance(value, partial):
            return self.call("partial", (value.func, *value.args), value.keywords)
        plain = value if isinstance(value, FunctionType) else getattr(value, "__wrapped__", None)
        if not isinstance(plain, FunctionType):
            raise Unwritable(repr(value))
        module = sys.modules.get(plain.__module__)
        known = vars(module).get(plain.__name__) if module is not None else None
        if value not in (known, getattr(known, "plan", None)):
            raise Unwritable(f"{plain.__qualname__} is not what {plain.__module__} calls so")
        self.functions.append((plain.__code__.co_filename, plain.__module__, plain.__name__))
        return plain.__name__

    def call(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
        """A call as its caller would write it."""
        given = [*map(self.value, arguments)]
        given += [f"{key}={self.value(x)}" for key, x in keywords.items()]
        return f"{name}({', '.join(given)})"


def of_row(call: Callable[..., Any], names: Mapping[int, str]) -> tuple[str, tuple[Function, ...]]:
    """How a row is called on `OP` and `inputs`, and the functions that it uses; empty: unknown."""
    writer = Writer(names)
    try:
        if not isinstance(call, planned):
            text = f"{writer.function(call)}(OP, *inputs)"
        elif isinstance(call.plan, Always):
            text = f"{writer.function(call.plan.function)}(*inputs)"
        else:
            text = f"{writer.function(call.plan)}(OP, *inputs)(*inputs)"
    except Unwritable:
        return "", ()
    return text, tuple(writer.functions)


def public_names(framework: str) -> dict[int, str]:
    """What a package offers under public names, each by the shortest."""
    found: dict[int, str] = {}
    level = [(framework, sys.modules[framework])] if framework in sys.modules else []
    modules = {id(module) for _, module in level}
    for _ in range(DEPTH):
        deeper = []
        for path, module in level:
            for name, value in list(vars(module).items()):
                if name.startswith("_") or value is None or isinstance(value, (int, float, str)):
                    continue
                if not isinstance(value, ModuleType):
                    found.setdefault(id(value), f"{path}.{name}")
                elif id(value) not in modules and _within(value, framework):
                    modules.add(id(value))
                    deeper.append((f"{path}.{name}", value))
        level = deeper
    return found


def _within(module: ModuleType, package: str) -> bool:
    """By the module's dictionary: asking a lazy one for its name would import it."""
    return str(vars(module).get("__name__")).partition(".")[0] == package
