"""Names that a user types, and the things that they stand for.

Requirements: what cannot be resolved is one line that says what was given, what is known and what
was probably meant.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from d5test.case import Operator


def unknown(what: str, name: str, names: Iterable[str]) -> pytest.UsageError:
    """The error for a name that is none of `names`."""
    names = list(names)
    folded = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if close:
        hint = "did you mean " + " or ".join(folded[c] for c in close) + "?"
    else:
        listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        hint = f"known: {listed}" if names else "there is none"
    return pytest.UsageError(f"unknown {what} {name!r}: {hint}")


def chosen(what: str, given: Iterable[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `known` that are named, in the order of `known`; all if none is."""
    given = tuple(given)
    for name in given:
        if name not in known:
            raise unknown(what, name, known)
    return {name: value for name, value in known.items() if not given or name in given}


def operators(
    given: Iterable[str], native: Mapping[str, type[Operator]] = MappingProxyType({})
) -> dict[str, type[Operator]]:
    """The operators that are named: ours, installed and native ones by name, others by place."""
    from d5test.reference.operators import OPERATORS

    known = {**OPERATORS, **_installed_operators(), **native}
    named = tuple(given)
    strangers = {name: located("operator", name) for name in named if ":" in name}
    for name, operator in strangers.items():
        if not (isinstance(operator, type) and issubclass(operator, Operator)):
            raise pytest.UsageError(f"operator {name!r} is not a subclass of d5test.case.Operator")
    inside = [name for name in named if name not in strangers]
    result = chosen("operator", inside, known) if inside or not strangers else {}
    return {**result, **{operator.__name__: operator for operator in strangers.values()}}


def _installed_operators() -> dict[str, type[Operator]]:
    found = {}
    for entry in entry_points(group="d5test.operators"):
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
            raise pytest.UsageError(
                f"operator {entry.name!r} of the entry point {entry.value!r} fails to load: "
                f"{type(error).__name__}: {error}"
            ) from None
    return found


def located(what: str, name: str) -> Any:
    """What `module:Name` or `./file.py:Name` stands for."""
    place, _, attribute = name.rpartition(":")
    try:
        module = (
            _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        )
        return getattr(module, attribute)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
        raise pytest.UsageError(
            f"{what} {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from None


def _from_file(path: Path) -> ModuleType:
    name = f"d5test_stranger_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise FileNotFoundError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
