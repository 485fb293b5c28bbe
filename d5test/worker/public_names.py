"""What a framework offers under public names, and by which classes its layers are called."""

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

DEPTH = 3
"""How deep in a package its public modules are searched for the names of its functions."""


def offered(framework: str) -> Iterator[tuple[str, Any]]:
    """What a package offers under public names, the shorter ones first."""
    level = [(framework, sys.modules[framework])] if framework in sys.modules else []
    modules = {id(module) for _, module in level}
    for _ in range(DEPTH):
        deeper = []
        for path, module in level:
            for name, value in list(vars(module).items()):
                if name.startswith("_") or value is None or isinstance(value, (int, float, str)):
                    continue
                if not isinstance(value, ModuleType):
                    yield f"{path}.{name}", value
                    continue
                # by the module's dictionary: asking a lazy one for its name would import it
                package = str(vars(value).get("__name__")).partition(".")[0]
                if id(value) not in modules and package == framework:
                    modules.add(id(value))
                    deeper.append((f"{path}.{name}", value))
        level = deeper


@contextmanager
def unwarned() -> Iterator[None]:
    """Within: a framework does not warn of its names, some of which are deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@unwarned()
def public_names(framework: str) -> dict[int, str]:
    """What a package offers under public names, each by the shortest.

    Of the names in one module it is the function's own: `power`, not its alias `pow`.
    """
    names: dict[int, str] = {}
    for name, value in offered(framework):
        known = names.setdefault(id(value), name)
        if known != name and callable(value):  # what is none may compute its attributes
            module = known.rpartition(".")[0]
            if name == f"{module}.{getattr(value, '__name__', '')}":
                names[id(value)] = name
    return names


def names_for(backend: Any) -> dict[int, str]:
    """The public names of a backend's framework; a user's own prefers the modules it imports.

    A function may be public in several: a developer writes `mine.functions.add`, and not
    `mine.function_bases.add`, where it is defined.
    """
    framework, home = backend.framework, type(backend).__module__
    names = public_names(framework)
    if home.partition(".")[0] == "d5test":
        return names
    for module in vars(sys.modules[home]).values():
        path = module.__name__ if isinstance(module, ModuleType) else ""
        if path.startswith(f"{framework}.") and "._" not in path:
            names |= _preferred(names, path, module)
    return names


@unwarned()
def _preferred(names: Mapping[int, str], path: str, module: ModuleType) -> dict[int, str]:
    """The names that functions of other modules have in this one."""
    preferred: dict[int, str] = {}
    for name, value in list(vars(module).items()):
        other = id(value) in names and names[id(value)].rpartition(".")[0] != path
        if other and callable(value) and not name.startswith("_"):
            own = name == getattr(value, "__name__", "")
            if own or id(value) not in preferred:
                preferred[id(value)] = f"{path}.{name}"
    return preferred


@unwarned()
def callers(framework: str) -> set[type]:
    """The classes by which instances of public classes are called: torch.nn.Module and others.

    Not those of Python's library.
    """
    kinds = [value for _, value in offered(framework) if isinstance(value, type)]
    bases = {next((b for b in kind.__mro__ if "__call__" in vars(b)), object) for kind in kinds}
    return {
        base
        for base in bases
        if base.__module__.partition(".")[0] not in sys.stdlib_module_names
        and not issubclass(base, type)
    }
