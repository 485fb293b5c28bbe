"""Every name on the command line, resolved before anything is collected.

Requirements: resolved in `pytest_configure`, for only there is a usage error one line and exit
status 4; what is not named is not imported, so that other tests, or --help, cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.case import FLOATS, Operator
from d5test.checks.check import Check
from d5test.known.failure import Known, KnownFailure, Pinned
from d5test.known.reading import Unreadable, read, shipped
from d5test.names import chosen
from d5test.plugin import native
from d5test.plugin.names import operators, resolving

SELECTION = pytest.StashKey["Selection"]()
PLAIN = "test_plain.py"
"""The file of a suite that is written for readers: its tests have no fields to choose them by."""
CHOOSING = (
    "--operator", "--check", "--dtype", "--native", "--optimizer", "--network", "--recipe",
    "--comm", "--control", "--benchmark-only", "--benchmark-json", "--benchmark-save",
    "--benchmark-autosave", "--gate-old",
)  # fmt: skip
"""Options that choose tests, or keep times that are measured with care."""


@dataclass(frozen=True)
class Selection:
    """What the command line names. What it does not name is all that there is."""

    backends: tuple[str, ...]
    operator_names: tuple[str, ...]
    check_names: tuple[str, ...]
    dtype_names: tuple[str, ...]
    known_files: tuple[str, ...]
    native_files: tuple[str, ...] = ()
    sanitize: bool = False

    @cached_property
    def natives(self) -> tuple[Any, ...]:
        """The compiled files of native operators."""
        return native.loaded(self.native_files, sanitize=self.sanitize)

    @cached_property
    def native_operators(self) -> Mapping[str, type[Operator]]:
        """The operators of the compiled files, by name."""
        return {name: cls for one in self.natives for name, cls in one.operators.items()}

    @cached_property
    def operators(self) -> Mapping[str, type[Operator]]:
        """The operators under test, by name."""
        own = self.native_operators
        return operators(self.operator_names or tuple(own), own)

    @cached_property
    def every_operator(self) -> Mapping[str, type[Operator]]:
        """The operators that a row may have, and a known failure may speak of."""
        return {**operators(()), **self.native_operators, **self.operators}

    @cached_property
    def checks(self) -> Mapping[str, Any]:
        """The checks of ours to run, by name."""
        from d5test.checks import CHECKS

        return chosen("check", self.check_names, CHECKS)

    def asks(self, check: Check) -> bool:
        """Whether a check is to be run: it is named, or none is."""
        return not self.check_names or check.name in self.checks

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes under test, widest first."""
        return tuple(chosen("dtype", self.dtype_names, dict.fromkeys(FLOATS)))

    @cached_property
    def given_known(self) -> tuple[KnownFailure, ...]:
        """The rows of the files given by `--known`."""
        return tuple(row for file in self.known_files for row in self.rows(file))

    def rows(self, file: str | Path) -> list[KnownFailure]:
        """The rows of one file of known failures."""
        from d5test.checks import CHECKS

        try:
            return read(file, self.every_operator, CHECKS)
        except Unreadable as error:
            raise pytest.UsageError(str(error)) from None

    def known(self, about: Any) -> Known:
        """The known failures of a backend: those that come with the suites, and those given.

        Rows that come with the suites do not hold for an operator that a native one replaces.
        """
        ours = shipped(about.framework)
        own = {name for one in self.natives for name in one.operators}
        come = self.rows(ours) if ours.exists() else []
        rows = (*(row for row in come if not own & {*row.operators}), *self.given_known)
        given = (about.name, about.version, about.device_name)
        return Known(tuple(row for row in rows if row.speaks_of(*given)))

    def wants(self, pinned: Pinned) -> bool:
        """Whether the check and the cell of a pinned case are asked for."""
        return (
            pinned.check in self.checks
            and pinned.case.op.name in self.operators
            and pinned.case.dtype in self.dtypes
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files for readers out where tests are chosen, unless they are named."""
    if collection_path.name != PLAIN:
        return None
    named = any(Path(str(argument).partition("::")[0]).name == PLAIN for argument in config.args)
    chosen = any(config.getoption(option, None) for option in CHOOSING)
    return True if chosen and not named else None


@pytest.hookimpl(tryfirst=True)
@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named, but for backends, which `workers` starts."""
    config.addinivalue_line(
        "markers",
        "check(check): the d5test.checks.check.Check that this test runs, see d5test.suite",
    )
    option = config.getoption
    selection = Selection(
        backends=listed(option("--backend")),
        operator_names=listed(option("--operator")),
        check_names=listed(option("--check")),
        dtype_names=listed(option("--dtype")),
        known_files=tuple(option("--known")),
        native_files=listed(option("--native")),
        sanitize=option("--native-sanitize"),
    )
    config.stash[SELECTION] = selection
    if option("--control") and option("--in-process"):
        raise pytest.UsageError("--control times in fresh processes: leave out --in-process")
    if selection.sanitize and option("--in-process"):
        raise pytest.UsageError("--native-sanitize needs a worker process: leave out --in-process")
    if selection.operator_names or selection.native_files:
        selection.operators  # noqa: B018
    if selection.check_names:
        selection.checks  # noqa: B018
    if selection.dtype_names:
        selection.dtypes  # noqa: B018
    if selection.known_files:
        selection.given_known  # noqa: B018
