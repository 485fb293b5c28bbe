"""What a framework offers under public names, and by which classes its layers are called."""

import sys
import warnings
from collections.abc import Iterator
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
