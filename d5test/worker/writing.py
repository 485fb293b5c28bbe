"""Values, calls and rows as source text, the framework's own functions by their public names.

NumPy and the framework only.
"""

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from d5test.backends.base import Always, planned
from d5test.worker.inner import NoSource, made

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
            return self.unnamed(value)
        self.functions.append((plain.__code__.co_filename, plain.__module__, plain.__name__))
        return plain.__name__

    def unnamed(self, value: Any) -> str:
        """A function that is not what its module calls so. Raises `Unwritable`."""
        raise Unwritable(f"{value.__qualname__} is not what {value.__module__} calls so")

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


class RowWriter(Writer):
    """Writes how a row is called, also if it is a lambda or stands within another function."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__(names)
        self.made: list[Function] = []
        """The file and the module of each such function, and a statement that makes it."""
        self._within: list[FunctionType] = []

    def function(self, value: Any) -> str:
        """Those of NumPy and Python, and modules, may be what a function has from outside."""
        if isinstance(value, ModuleType):
            self.modules.append(value.__name__)
            return value.__name__
        name = getattr(value, "__name__", "")
        for prefix, module in (("np.", np), ("", builtins)):
            if isinstance(name, str) and vars(module).get(name) is value is not None:
                return f"{prefix}{name}"
        return super().function(value)

    def unnamed(self, value: Any) -> str:
        """A call of what makes it, on what it has from outside."""
        if not isinstance(value, FunctionType) or value in self._within:
            return super().unnamed(value)
        code = value.__code__
        name = f"{'row' if code.co_name == '<lambda>' else code.co_name}_{len(self.made)}"
        try:
            text, taken = made(code, name)
            outside = [cell.cell_contents for cell in value.__closure__ or ()]
        except (NoSource, ValueError) as error:  # a cell may be empty
            raise Unwritable(str(error)) from None
        self.made.append((code.co_filename, value.__module__, text))
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()][:taken]
        self._within.append(value)
        arguments = [*map(self.value, [*outside, *defaults])]
        self._within.pop()
        return f"{name}({', '.join(arguments)})" if arguments else name


class Written(NamedTuple):
    """How a row is called on `OP` and `inputs`; `call` is empty if it is unknown.

    functions  what that uses: the file, the module and the name of each function
    modules    the framework's modules that it uses
    made       statements that make other functions: the file, the module and the text of each
    """

    call: str = ""
    functions: tuple[Function, ...] = ()
    modules: tuple[str, ...] = ()
    made: tuple[Function, ...] = ()


def of_row(call: Callable[..., Any], names: Mapping[int, str]) -> Written:
    """How a row is called."""
    writer = RowWriter(names)
    try:
        if not isinstance(call, planned):
            text = f"{writer.function(call)}(OP, *inputs)"
        elif isinstance(call.plan, Always):
            text = f"{writer.function(call.plan.function)}(*inputs)"
        else:
            text = f"{writer.function(call.plan)}(OP, *inputs)(*inputs)"
    except Unwritable:
        return Written()
    modules = tuple(dict.fromkeys(writer.modules))
    return Written(text, tuple(writer.functions), modules, tuple(writer.made))


def unwritable(what: str, _: Writer) -> str:
    """Raises `Unwritable`."""
    raise Unwritable(what)
