"""Optimizers x dtypes, and recipes: which tests of training there are.

Requirements: `--optimizer` and `--recipe` are resolved before anything is collected; tests are
chosen by their fields, never by patterns over their ids. Recipes are run where they are named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.backends.updater import environment
from d5test.names import BadName, unknown
from d5test.plugin.names import resolving, selected, subclass_of
from d5test.plugin.selection import SELECTION
from d5test.reference.optimizers import OPTIMIZERS, Optimizer

KINDS = ("native", "reference")
"""The framework's own optimizer, and our rule on its tensors."""
DTYPES = ("float64", "float32")
RULES = pytest.StashKey[Mapping[str, type[Optimizer]]]()
"""The update rules that are judged, by name."""
BROUGHT = pytest.StashKey[Mapping[str, str]]()
"""What tells a worker of those that are a user's own."""
RECIPES = pytest.StashKey[tuple[Path, ...]]()
RECIPE_FILE = "test_recipe.py"
SUITES = frozenset({"training", "distributed"})
"""Those that have one."""


@dataclass(frozen=True)
class RuleCell:
    """An update rule and a dtype."""

    rule: type[Optimizer]
    dtype: str

    @property
    def id(self) -> str:
        """How it stands in a test's id."""
        return f"{self.rule.__name__}-{self.dtype}"


@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named."""
    asked = listed(config.getoption("--optimizer"))
    distributed: Mapping[str, Any] = {}
    if any(name not in OPTIMIZERS and ":" not in name for name in asked):
        from d5test.distributed.optimizers import DISTRIBUTED

        distributed = DISTRIBUTED
    accept = subclass_of("optimizer", Optimizer)
    found = selected("optimizer", asked, {**OPTIMIZERS, **distributed}, accept)
    config.stash[RULES] = {name: rule for name, rule in found.items() if name not in distributed}
    config.stash[RECIPES] = tuple(located(name) for name in listed(config.getoption("--recipe")))
    config.stash[BROUGHT] = environment([*config.stash[RULES].values(), *_recipes_rules(config)])


def _recipes_rules(config: pytest.Config) -> Iterator[type[Optimizer]]:
    if config.stash[RECIPES]:
        from d5test.training.recipe import BadRecipe, load

        try:
            for file in config.stash[RECIPES]:
                yield type(load(file).optimizer())
        except BadRecipe as error:
            raise pytest.UsageError(str(error)) from None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave recipes out where none is named."""
    ours = SUITES.intersection(collection_path.parts) and collection_path.name == RECIPE_FILE
    return True if ours and not config.stash[RECIPES] else None


def located(name: str) -> Path:
    """The file of a recipe: where the user stands, or among those that come with the suites."""
    folder = suite("training") / "recipes"
    places = (Path(name), folder.parent / name, folder / f"{name}.py")
    found = next((place for place in places if os.path.isfile(place)), None)
    if found is None:
        known = [path.stem for path in sorted(folder.glob("*.py"))]
        if name in known or "/" not in name:
            raise unknown("recipe", name, known)
        raise BadName(f"--recipe: there is no file {name}")
    return found.resolve()


def suite(name: str) -> Path:
    """The folder of a suite: in the package when it is installed, beside it in a clone."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "suites"
    return (inside if inside.is_dir() else package.parent / "suites") / name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `rule_cell`, and for `updater_kind` beside it."""
    if "rule_cell" in metafunc.fixturenames:
        dtypes = metafunc.config.stash[SELECTION].dtypes
        cells = [
            RuleCell(rule, dtype)
            for rule in metafunc.config.stash[RULES].values()
            for dtype in DTYPES
            if dtype in dtypes
        ]
        metafunc.parametrize("rule_cell", cells, indirect=True, ids=[cell.id for cell in cells])
    if "updater_kind" in metafunc.fixturenames:
        metafunc.parametrize("updater_kind", KINDS, indirect=True, ids=KINDS)
    if "curve" in metafunc.fixturenames:
        named: list[Path | None] = [None, *metafunc.config.stash[RECIPES]]
        ids = ["perceptron" if path is None else path.stem for path in named]
        metafunc.parametrize("curve", named, indirect=True, ids=ids, scope="session")
    if "recipe_file" in metafunc.fixturenames:
        files = metafunc.config.stash[RECIPES]
        ids = [path.stem for path in files]
        metafunc.parametrize("recipe_file", files, indirect=True, ids=ids)
