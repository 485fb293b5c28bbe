"""Values, calls and rows as source text, the framework's own functions by their public names.

NumPy and the framework only.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from d5test.backends.base import Always, planned

Function = tuple[str, str, str]
"""Where a function of a row's stands: file, module and name."""


class Unwritable(Exception):
    """A value that has no source text."""


class Writer:
    """Writes values; `names` has those of the framework by identity, tensors are x0, x1, ..."""

    def __init__(self, names: Mapping[int, str], tensors: Sequence[Any] = ()) -> None:
        self.functions: list[Function] = []
        """Those that what was written uses, besides the framework's."""
        self.modules: list[str] = []
        """The framework's modules that it uses, by the names under which they are imported."""
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
            pairs = (f"{self.value(key)}: {self.value(x)}" for key, x in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, slice):
            return self.call("slice", (value.start, value.stop, value.step), {})
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
            return f"np.array({self.value(value.tolist())}, {value.dtype.name!r})"
        return self.function(value)

    def function(self, value: Any) -> str:
        """The framework's, a row's own, or a `partial` of one. Raises `Unwritable`."""
        if id(value) in self._names:
            return self.named(self._names[id(value)])
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

    def named(self, name: str) -> str:
        """The public name of something in the framework, whose module has to be imported."""
        parts = name.split(".")
        places = (".".join(parts[:k]) for k in range(len(parts) - 1, 0, -1))
        self.modules.append(next((p for p in places if p in sys.modules), parts[0]))
        return name

    def call(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
        """A call as its caller would write it."""
        named = (f"{key}={self.value(x)}" for key, x in keywords.items())
        return f"{name}({', '.join([*map(self.value, arguments), *named])})"


def of_row(
    call: Callable[..., Any], names: Mapping[int, str]
) -> tuple[str, tuple[Function, ...], tuple[str, ...]]:
    """How a row is called on `OP` and `inputs`, and the functions and modules that it uses.

    Empty: unknown.
    """
    writer = Writer(names)
    try:
        if not isinstance(call, planned):
            text = f"{writer.function(call)}(OP, *inputs)"
        elif isinstance(call.plan, Always):
            text = f"{writer.function(call.plan.function)}(*inputs)"
        else:
            text = f"{writer.function(call.plan)}(OP, *inputs)(*inputs)"
    except Unwritable:
        return "", (), ()
    return text, tuple(writer.functions), tuple(dict.fromkeys(writer.modules))


def unwritable(what: str, _: Writer) -> str:
    """Raises `Unwritable`."""
    raise Unwritable(what)
