"""What a name on the command line stands for: one of ours, or one that the user brings.

Whatever a user brings is named in the same three ways, on the command line and in recipes:

    lion               an entry point of the group d5test.optimizers (d5test.backends, ...)
    package.lion:Lion  a name in a module, which may lie in the working directory
    ./lion.py:Lion     a name in a file

Requirements: what cannot be resolved is `BadName`, one line that says what was given, what there
is and what was probably meant. A file or a module shadows nothing by lying beside another: its
folder is searched last. Standard library only: workers under other interpreters load by it, too.
"""

import ast
import difflib
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

LONGEST = 400
"""Characters of a name that a message shows."""


class BadName(ValueError):
    """A name that stands for nothing. Its text is one line."""


def quoted(text: str) -> str:
    """What was given, in quotes; the middle of a long one is left out."""
    whole = repr(text)
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST // 2]} ... {whole[-40:]}"


def short(name: str) -> str:
    """What something is called in words that a user brings as a file: without folders.

    >>> short("../new/mine.py:Mine@/envs/new/bin/python"), short("torch@/envs/new")
    ('mine.py:Mine', 'torch@/envs/new')
    """
    what = name.partition("@")[0]
    return os.path.basename(what) if ".py:" in what else name


def hint(name: str, names: Iterable[str]) -> str:
    """What was probably meant, or what there is.

    >>> hint("Rleu", ["Relu", "Elu"])
    'did you mean Relu?'
    """
    names = list(names)
    folded = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(folded[c] for c in close) + "?"
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"known: {listed}" if names else "there is none"


def unknown(what: str, name: str, names: Iterable[str]) -> BadName:
    """The error for a name that is none of `names`."""
    if name.endswith(".py") and (why := nameless(what, name)):
        return BadName(why)
    return BadName(f"unknown {what} {quoted(name)}: {hint(name, names)}")


def chosen(what: str, asked: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `known` that are asked for, in the order of `known`; all if none is."""
    asked = tuple(asked)
    for name in asked:
        if name not in known:
            raise unknown(what, name, known)
    return {name: value for name, value in known.items() if not asked or name in asked}


def resolve(what: str, name: str, known: Mapping[str, Any]) -> Any:
    """What one name stands for: one of ours, `known`, or what a user brings. Raises `BadName`."""
    if name in known:
        return known[name]
    if ":" in name:
        return located(what, name)
    brought = installed(what)
    if name not in brought:
        raise unknown(what, name, {**known, **brought})
    return brought[name]


def nameless(what: str, path: str) -> str:
    """What to write in place of a file's path without a name behind it."""
    try:
        # unlike Path's, os' raises nothing for a user that does not exist
        body = ast.parse(Path(os.path.expanduser(path)).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    named = [n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    derived = [n for n in named if isinstance(n, ast.ClassDef) and n.bases]  # as ours have to be
    names = [n.name for n in derived or named if not n.name.startswith("_")]
    meant = " or ".join(f"{path}:{name}" for name in names)
    return f"{what} {quoted(path)} is a file: give {meant or 'a name in it, ' + path + ':Name'}"


def located(what: str, name: str) -> Any:
    """What `module:Name` or `./file.py:Name` stands for. Raises `BadName`."""
    return _loaded(f"{what} {quoted(name)}", partial(load, name))


def installed(what: str) -> dict[str, Any]:
    """What the entry points of the group `d5test.{what}s` stand for. Raises `BadName`."""
    return {
        entry.name: _loaded(
            f"{what} {entry.name!r} of the entry point {entry.value!r}", entry.load
        )
        for entry in entry_points(group=f"d5test.{what}s")
    }


def _loaded(what: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadName(f"{what} cannot be loaded: {words}") from None


def load(target: str) -> Any:
    """What `module:Name` or `file.py:Name` stands for. Raises what importing it raises."""
    place, _, name = target.rpartition(":")
    module = module_of(place)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise AttributeError(f"{place} has no {name or 'empty name'}; {hint(name, public)}")
    return getattr(module, name)


def module_of(place: str) -> ModuleType:
    """The module `package.module`, or that of a file `file.py`."""
    if not place.endswith(".py"):
        return _module_here(place)
    path = os.path.abspath(os.path.expanduser(place))
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    with open(path, "rb") as file:
        key = hashlib.sha256(os.fsencode(path) + file.read())
    stem = os.path.basename(path).removesuffix(".py")
    name = f"d5test_file_{stem}_{key.hexdigest()[:12]}"
    return sys.modules.get(name) or from_file(path, name)


def from_file(path: str | os.PathLike[str], name: str) -> ModuleType:
    """The module `name` made of a file, which can import its neighbours."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    _search_last(os.path.dirname(os.path.abspath(path)))
    return _executed(name, spec)


def target_of(thing: Any) -> str:
    """The target by which another process loads a class or function."""
    module = sys.modules[thing.__module__]
    if module.__name__ == "__main__" or module.__name__.startswith("d5test_"):
        return f"{os.path.abspath(str(module.__file__))}:{thing.__qualname__}"
    return f"{module.__name__}:{thing.__qualname__}"


def _module_here(name: str) -> ModuleType:
    """A module by name: of the working directory, or else where Python finds it."""
    first, here = name.partition(".")[0], os.getcwd()
    spec = PathFinder.find_spec(first, [here]) if first not in sys.modules else None
    _search_last(here)
    if spec is not None and spec.origin is not None:
        _executed(first, spec)
    return importlib.import_module(name)


def _search_last(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _executed(name: str, spec: Any) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def plural(count: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
