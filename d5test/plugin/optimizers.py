"""Optimizers x dtypes, and recipes: which tests of training there are.

Requirements: `--optimizer` and `--recipe` are resolved before anything is collected, and a recipe
that cannot be run is refused there; tests are chosen by their fields, never by patterns over their
ids. Recipes are run where they are named; a run of level 2 or 3 is then that of the recipe.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.backends.updater import environment
from d5test.case import FLOATS
from d5test.distributed.provider import launched
from d5test.files import folder_of_suites
from d5test.names import BadName, unknown
from d5test.plugin.outcomes import carried
from d5test.plugin.selection import SELECTION, resolving, selected, subclass_of
from d5test.plugin.workers import BROUGHT, WORKERS
from d5test.reference.optimizers import OPTIMIZERS, Optimizer

KINDS = ("native", "reference")
"""The framework's own optimizer, and our rule on its tensors."""
RULES = pytest.StashKey[Mapping[str, type[Optimizer]]]()
"""The update rules that are judged, by name."""
RECIPES = pytest.StashKey[tuple[Path, ...]]()
VALUES = "d5test-recipe"
"""The name of the entry in a report's `user_properties`: what a run by a recipe measured."""


@dataclass(frozen=True)
class RuleCell:
    """An update rule and a dtype."""

    rule: type[Optimizer]
    dtype: str


@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named."""
    asked = listed(config.getoption("--optimizer"))
    distributed: Mapping[str, Any] = {}
    if any(name not in OPTIMIZERS and ":" not in name for name in asked):
        from d5test.distributed.optimizers import DISTRIBUTED

        distributed = DISTRIBUTED
    accept = subclass_of("optimizer", Optimizer)
    rules = selected("optimizer", asked, {**OPTIMIZERS, **distributed}, accept)
    config.stash[RULES] = {name: rule for name, rule in rules.items() if name not in distributed}
    config.stash[RECIPES] = tuple(located(name) for name in listed(config.getoption("--recipe")))
    config.stash[BROUGHT] = environment([*config.stash[RULES].values(), *_recipes_rules(config)])


def _recipes_rules(config: pytest.Config) -> Iterator[type[Optimizer]]:
    """The rules of the recipes that are named. UsageError for a recipe that cannot be run.

    Under MPI the data is rank 0's, and read by the tests.
    """
    if not config.stash[RECIPES]:
        return
    from d5test.training.datasets import BadFile, NoPackage
    from d5test.training.recipe import BadRecipe, load

    alone = launched() is None and not hasattr(config, "workerinput")
    for file in config.stash[RECIPES]:
        try:
            recipe = load(file)
            yield type(recipe.optimizer())
            recipe.network(recipe.fixed["seeds"][0])
            if alone:
                recipe.dataset()
        except BadRecipe as error:
            raise pytest.UsageError(str(error)) from None
        except (BadFile, NoPackage) as error:
            raise pytest.UsageError(f"{file.stem}: {error}") from None


def located(name: str) -> Path:
    """The file of a recipe: where the user stands, or among those that come with the suites."""
    folder = folder_of_suites() / "training" / "recipes"
    places = (Path(name), folder.parent / name, folder / f"{name}.py")
    path = next((place for place in places if os.path.isfile(place)), None)
    if path is None:
        known = [path.stem for path in sorted(folder.glob("*.py"))]
        if name in known or "/" not in name:
            raise unknown("recipe", name, known)
        raise BadName(f"--recipe: there is no file {name}")
    return path.resolve()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave recipes out where none is named."""
    ours = {"training", "distributed"}.intersection(collection_path.parts)
    recipes = ours and collection_path.name == "test_recipe.py"
    return True if recipes and not config.stash[RECIPES] else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `rule_cell`, `updater_kind`, `curve` or `recipe_file`.

    Rules of a user's own are judged in 64 and 32 bits: their hyperparameters and their thresholds
    are not known to be exact in 16.
    """
    stash, asked = metafunc.config.stash, metafunc.fixturenames
    if "rule_cell" in asked:
        cells = [
            RuleCell(rule, dtype)
            for rule in stash[RULES].values()
            for dtype in (FLOATS if OPTIMIZERS.get(rule.__name__) is rule else FLOATS[:2])
            if dtype in stash[SELECTION].dtypes
        ]
        ids = [f"{cell.rule.__name__}-{cell.dtype}" for cell in cells]
        metafunc.parametrize("rule_cell", cells, ids=ids)
    if "updater_kind" in asked:
        clients = stash[WORKERS].clients.values() if "rule_cell" in asked else ()
        others = [kind for client in clients for kind in client.about.updaters]
        metafunc.parametrize("updater_kind", list(dict.fromkeys([*KINDS, *others])))
    recipes, ids = stash[RECIPES], [path.stem for path in stash[RECIPES]]
    if "curve" in asked:
        curves, names = [None, *recipes], ["perceptron", *ids]
        metafunc.parametrize("curve", curves, indirect=True, ids=names, scope="session")
    if "recipe_file" in asked:
        metafunc.parametrize("recipe_file", recipes, ids=ids)


def require_implementations(config: pytest.Config) -> None:
    """Refuse a rule of a user's own of which no backend has an implementation to judge."""
    clients = config.stash[WORKERS].clients
    for name, rule in config.stash[RULES].items():
        ours = OPTIMIZERS.get(name) is rule
        if ours or not clients or any(name in client.about.rows for client in clients.values()):
            continue
        has = ", ".join(rule.implementations) or "none"
        raise pytest.UsageError(
            f"{name} has no implementation in {', '.join(clients)}, only in: {has}; there is "
            "nothing to judge: docs/training.md says how its `implementations` are written"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rest of levels 2 and 3 where recipes are named, but for first losses.

    On level 2 the steps of optimizers that are named beside are kept, too.
    """
    if any("rule_cell" in _params(item) for item in items):
        require_implementations(config)
    others = [item for item in items if config.stash[RECIPES] and _of_no_recipe(item, config)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def _params(item: pytest.Item) -> Mapping[str, Any]:
    """What a test is parametrised by."""
    params: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return params


def _of_no_recipe(item: pytest.Item, config: pytest.Config) -> bool:
    asked = _params(item)
    if "rule_cell" in asked:
        return not config.getoption("--optimizer")
    return bool({"part", "engine_case"} & asked.keys()) or (
        "curve" in asked and asked["curve"] is None
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what recipes measured."""
    lines = carried(terminalreporter, VALUES)
    if lines:
        terminalreporter.section("d5test: recipes", sep="=")
        for line in lines:
            terminalreporter.write_line(str(line))
