"""Every name on the command line, resolved before anything is collected.

Requirements: resolved in `pytest_configure`, for only there is a usage error one line and exit
status 4; what is not named is not imported, so that other tests, or --help, cost nothing. Runs
that are measured, or gate, are runs of their own: only where their file is named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.case import FLOATS, Operator
from d5test.checks.check import Check
from d5test.known.failure import Known, KnownFailure, Pinned
from d5test.known.reading import Unreadable, read, shipped
from d5test.names import BadName, chosen, installed, located
from d5test.plugin import native

SELECTION = pytest.StashKey["Selection"]()
PLAIN = "test_plain.py"
"""The file of a suite that is written for readers: its tests have no fields to choose them by."""
CHOOSING = (
    "--operator", "--check", "--dtype", "--native", "--optimizer", "--network", "--recipe",
    "--comm", "--collective", "--compressor", "--control", "--benchmark-only", "--benchmark-json",
    "--benchmark-save", "--benchmark-autosave", "--gate-old",
)  # fmt: skip
"""Options that choose tests, or keep times that are measured with care."""
FULL = ("real", "large")
"""Sizes of which checks of their own are asked, and no others."""
APART = {"test_time.py": {"operators", "networks", "distributed"}, "test_corpus.py": {"operators"}}
"""Files that are runs of their own, in which suites: a busy machine spoils times, and drawing
explores where a corpus gates."""


@contextmanager
def resolving() -> Iterator[None]:
    """Within, or in what is decorated, a name that stands for nothing is a UsageError."""
    try:
        yield
    except BadName as error:
        raise pytest.UsageError(str(error)) from None


def selected(
    what: str,
    asked: Iterable[str],
    known: Mapping[str, Any],
    accept: Callable[[str, Any], Any],
) -> dict[str, Any]:
    """What is asked for of one kind: ours, installed, or by place; all of the first two if none.

    `accept` makes of a name and what a user brings under it an entry, or raises `BadName`.
    """
    asked = tuple(asked)
    brought = {name: accept(name, located(what, name)) for name in asked if ":" in name}
    inside = [name for name in asked if name not in brought]
    entries: dict[str, Any] = {}
    if inside or not brought:
        entry = {name: accept(name, value) for name, value in installed(what).items()}
        entries = chosen(what, inside, {**known, **entry, **known})  # a name of ours stays ours
    return entries | {named(value, name): value for name, value in brought.items()}


def named(value: Any, name: str) -> str:
    """The name of what was brought: its own, or the last part of where it is."""
    title = getattr(value, "__name__", None) or getattr(value, "name", None)
    return title if isinstance(title, str) else name.rpartition(":")[2]


def operators(
    asked: Iterable[str], compiled: Mapping[str, type[Operator]] = MappingProxyType({})
) -> dict[str, type[Operator]]:
    """The operators that are asked for: ours, installed and native ones by name, or by place."""
    from d5test.reference.operators import FAMILIES, OPERATORS

    known, asked = {**OPERATORS, **compiled}, tuple(asked)
    for name in set(asked).difference(known):
        for family in FAMILIES:
            unlisted, home = getattr(family, name, None), family.__name__
            if isinstance(unlisted, type) and unlisted.__module__ == home:
                raise pytest.UsageError(f"operator {name!r} is missing from __all__ of {home}")
    return selected("operator", asked, known, subclass_of("operator", Operator))


def subclass_of(what: str, kind: type) -> Callable[[str, Any], Any]:
    """An `accept` of `selected` that takes subclasses of a class."""

    def accept(name: str, value: Any) -> Any:
        if not (isinstance(value, type) and issubclass(value, kind)):
            raise BadName(
                f"{what} {name!r} is not a subclass of {kind.__module__}.{kind.__name__}"
            )
        return value

    return accept


class Selection:
    """What the command line names. What it does not name is all that there is."""

    def __init__(self, option: Callable[[str], Any]) -> None:
        self.backends = listed(option("--backend"))
        self.operator_names = listed(option("--operator"))
        self.check_names = listed(option("--check"))
        self.dtype_names = listed(option("--dtype"))
        self.known_files: list[str] = option("--known")
        self.native_files = listed(option("--native"))
        self.sizes: str = option("--sizes")
        self.sanitize: bool = option("--native-sanitize")

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
        compiled = self.native_operators
        return operators(self.operator_names or tuple(compiled), compiled)

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
        """Whether a check is to be run: it is named, or none is, and is about these sizes."""
        named = not self.check_names or check.name in self.checks
        return named and check.sizes == (self.sizes if self.sizes in FULL else "")

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

        Rows that come with the suites do not hold for an operator that a native one replaces, nor
        where the backend calls something else than d5test's own does. Of those given, rows that
        come with the suites are left out.
        """
        file, replaced = shipped(about.framework), self.native_operators.keys()
        ours = self.rows(file) if file.exists() else []
        more = [row for row in self.given_known if row not in ours]
        ours = [
            replace(row, replaced=frozenset(of_others(about, row)))
            for row in ours
            if not replaced & {*row.operators}
        ]
        rows = (*ours, *more)
        return Known(tuple(row for row in rows if row.speaks_of(about)))

    def wants(self, pinned: Pinned) -> bool:
        """Whether the check and the cell of a pinned case are asked for."""
        return (
            pinned.check in self.checks
            and self.asks(self.checks[pinned.check])
            and pinned.case.op.name in self.operators
            and pinned.case.dtype in self.dtypes
        )


def of_others(about: Any, known: KnownFailure) -> Iterator[tuple[str, str]]:
    """The operators of a known failure, each with a form or none, that are not as d5test has them.

    The backend has another row for them, or none.
    """
    for name in known.operators:
        rows = {"": about.rows.get(name), **about.forms.get(name, {})}
        yield from ((name, form) for form, row in rows.items() if row is None or not row.ours)
    for pinned in known.pinned:
        name, form = pinned.case.op.name, pinned.case.form
        if form and form not in about.forms.get(name, {}):
            yield name, form


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave runs of their own out, and the files for readers where tests are chosen.

    What is named is collected.
    """
    file = collection_path.name
    apart = APART.get(file, set()).intersection(collection_path.parts)
    some = any(config.getoption(option, None) for option in CHOOSING)
    choosing = file == PLAIN and (some or config.getoption("--sizes") in FULL)
    named = any(Path(str(argument).partition("::")[0]).name == file for argument in config.args)
    return True if (apart or choosing) and not named else None


@pytest.hookimpl(tryfirst=True)
@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Resolve what is named, but for backends, which `workers` starts."""
    config.addinivalue_line(
        "markers",
        "check(check): the d5test.checks.check.Check that this test runs, see d5test.suite",
    )
    option = config.getoption
    selection = config.stash[SELECTION] = Selection(option)
    if option("--sizes") == "large" and config.getoption("numprocesses", None):
        raise pytest.UsageError("--sizes=large fills the memory with each call: leave out -n")
    if option("--control") and option("--in-process"):
        raise pytest.UsageError("--control times in fresh processes: leave out --in-process")
    if selection.sanitize and option("--in-process"):
        raise pytest.UsageError("--native-sanitize needs a worker process: leave out --in-process")
    if selection.operator_names or selection.native_files:
        selection.operators  # noqa: B018
    if selection.check_names:
        for check in selection.checks.values():
            if check.sizes not in ("", selection.sizes):
                raise pytest.UsageError(f"--check={check.name} takes --sizes={check.sizes}")
    if selection.dtype_names:
        selection.dtypes  # noqa: B018
    if selection.known_files:
        selection.given_known  # noqa: B018
