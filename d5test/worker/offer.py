"""The functions that a framework offers its users, each with all of its names.

NumPy and the framework only.
"""

import importlib
import inspect
from typing import Any

from d5test.backends.base import Backend


def offer(backend: Backend) -> list[tuple[str, ...]]:
    """The names of each public function, method and layer, those that users write first.

    Of what `offers` of the backend names: callables that have no underscore in front, but no
    classes of what is not called itself, as dtypes and tensors are.
    """
    names: dict[int, list[str]] = {}
    kept = []
    for short, path in backend.offers.items():
        home = located(path)
        for name in dir(home):
            if name.startswith("_"):
                continue
            value = getattr(home, name, None)
            if not is_called(value):
                continue
            kept.append(value)  # an object that nobody keeps leaves its identity to another
            known = names.setdefault(id(value), [])
            known += [n for n in (f"{short}.{name}", f"{path}.{name}") if n not in known]
    return [tuple(each) for each in names.values()]


def located(path: str) -> Any:
    """A module, or a class in one, by its name."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def is_called(value: Any) -> bool:
    """Whether users call it, or what it makes, on tensors."""
    if inspect.isclass(value):
        return any("__call__" in vars(base) for base in value.__mro__)
    return callable(value)
