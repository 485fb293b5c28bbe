"""Optimizers x dtypes: which tests of update rules there are.

Requirements: `--optimizer` is resolved before anything is collected; tests are chosen by their
fields, never by patterns over their ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from d5test.plugin import names
from d5test.plugin.options import listed
from d5test.plugin.selection import SELECTION
from d5test.reference.optimizers import OPTIMIZERS

KINDS = ("native", "reference")
"""The framework's own optimizer, and our rule on its tensors."""
DTYPES = ("float64", "float32")
CHOSEN = pytest.StashKey[tuple[str, ...]]()


@dataclass(frozen=True)
class RuleCell:
    """An update rule, by name, and a dtype."""

    rule: str
    dtype: str

    @property
    def id(self) -> str:
        """How it stands in a test's id."""
        return f"{self.rule}-{self.dtype}"


def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named."""
    asked = listed(config.getoption("--optimizer"))
    config.stash[CHOSEN] = tuple(names.chosen("optimizer", asked, OPTIMIZERS))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `rule_cell`, and for `updater_kind` beside it."""
    if "rule_cell" in metafunc.fixturenames:
        dtypes = metafunc.config.stash[SELECTION].dtypes
        cells = [
            RuleCell(rule, dtype)
            for rule in metafunc.config.stash[CHOSEN]
            for dtype in DTYPES
            if dtype in dtypes
        ]
        metafunc.parametrize("rule_cell", cells, indirect=True, ids=[cell.id for cell in cells])
    if "updater_kind" in metafunc.fixturenames:
        metafunc.parametrize("updater_kind", KINDS, indirect=True, ids=KINDS)
