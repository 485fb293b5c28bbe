"""Backends x (operator x dtype), and why a cell does not apply.

Requirements: `backend` is parametrised alone, by strings, in the session's scope (together with
anything else its fixture would be built anew for each row); what no backend can do makes no test,
but is counted by one test, `inapplicable`, of each check and backend. Tests are chosen by their
fields, never by patterns over their ids.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from d5test.backends.base import Unsupported
from d5test.case import FLOATS, Operator
from d5test.checks.check import Check
from d5test.client.messages import BackendInfo, RowInfo
from d5test.outcome.tally import Inapplicable
from d5test.plugin.optimizers import KINDS
from d5test.plugin.selection import SELECTION
from d5test.plugin.workers import WORKERS

Reason = Unsupported | Inapplicable
WITHOUT_BACKEND = pytest.StashKey[bool]()
"""Whether something collected needs a backend, and none is given."""


@dataclass(frozen=True)
class Cell:
    """An operator, a dtype and perhaps a form; with nothing, all that no backend can do."""

    operator: type[Operator] | None = None
    dtype: str = ""
    form: str = ""

    @property
    def id(self) -> str:
        """How it stands in a test's id."""
        if self.operator is None:
            return "inapplicable"
        return "-".join(filter(None, (self.operator.__name__, self.dtype, self.form)))


@dataclass(frozen=True)
class Table:
    """The cells of one check: those that some backend can do, and why each backend cannot."""

    applicable: tuple[Cell, ...]
    reasons: dict[tuple[str, Cell], Reason]

    def inapplicable(self, backend: str) -> list[tuple[Cell, Reason]]:
        """The cells that make no test, and why this backend cannot do them."""
        tested = set(self.applicable)
        return [
            (c, why) for (b, c), why in self.reasons.items() if b == backend and c not in tested
        ]


TABLES = pytest.StashKey[dict[str, Table]]()


def table(config: pytest.Config, check: Check) -> Table:
    """The cells of a check, worked out once."""
    tables = config.stash.setdefault(TABLES, {})
    if check.name in tables:
        return tables[check.name]
    selection, clients = config.stash[SELECTION], config.stash[WORKERS].clients
    if not selection.asks(check):
        clients = {}
    meant = {b: c.about for b, c in clients.items() if c.about.mode in check.modes}
    family = [op for op in selection.operators.values() if issubclass(op, check.family)]
    cells = [
        Cell(operator, dtype, form)
        for operator in family
        for form, declared in _forms(meant.values(), operator, check.forms).items()
        for dtype in check.dtypes_of(
            operator.__name__ + form,
            [d for d in selection.dtypes if d in declared],
            config.getoption("--examples") or 0,
        )
    ]
    reasons = {
        (backend, cell): reason
        for backend, about in meant.items()
        for cell in cells
        if cell.operator and _has(about, cell)
        if (reason := check.reason(cell.operator, about, cell.dtype) or _undeclared(about, cell))
    }
    applicable = [c for c in cells if any((b, c) not in reasons for b in meant)]
    tables[check.name] = Table(tuple(applicable), reasons)
    return tables[check.name]


def _forms(
    backends: Iterable[BackendInfo], operator: type[Operator], wanted: bool
) -> dict[str, Collection[str]]:
    """The forms of an operator that some backend has, in their order, with their dtypes.

    Where none are wanted, the one without a name that the row is.
    """
    if not wanted:
        return {"": FLOATS}
    forms: dict[str, Collection[str]] = {}
    for about in backends:
        for name, row in _named(about, operator).items():
            forms.setdefault(name, row.dtypes)
    return forms


def _named(about: BackendInfo, operator: type[Operator]) -> Mapping[str, RowInfo]:
    return about.forms.get(operator.__name__, {})


def _has(about: BackendInfo, cell: Cell) -> bool:
    """Whether a cell is none of a form that another backend has."""
    return not cell.form or (
        cell.operator is not None and cell.form in _named(about, cell.operator)
    )


def _undeclared(about: BackendInfo, cell: Cell) -> Reason | None:
    """Why a form cannot be asked in a dtype; nothing if it can."""
    if not cell.form or cell.operator is None:
        return None
    if cell.dtype in about.forms[cell.operator.__name__][cell.form].dtypes:
        return None
    return Unsupported(f"{cell.form} is not declared for {cell.dtype} on {about.name}")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[Any] | None:
    """Make nothing of the tests of checks that are not asked for, or not meant for a backend."""
    marks = getattr(obj, "pytestmark", ())
    checks = [mark.args[0] for mark in marks if mark.name == "check" and mark.args]
    config = collector.config
    if not checks or not config.stash[SELECTION].backends:
        return None
    clients = config.stash[WORKERS].clients.values()
    asked = config.stash[SELECTION].asks(checks[0])
    return None if asked and any(c.about.mode in checks[0].modes for c in clients) else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `backend`, and for `cell` or `known_row` beside it."""
    config = metafunc.config
    if not is_ours(metafunc, "backend"):
        return
    names = config.stash[SELECTION].backends
    if not names:
        config.stash[WITHOUT_BACKEND] = True
    metafunc.parametrize("backend", names, indirect=True, scope="session", ids=names)
    mark = metafunc.definition.get_closest_marker("check")
    if mark is not None and is_ours(metafunc, "cell"):
        known = table(config, mark.args[0])
        rest = any(map(known.inapplicable, config.stash[WORKERS].clients))
        cells = [*known.applicable, *([Cell()] if rest else [])]
        metafunc.parametrize("cell", cells, indirect=True, ids=[cell.id for cell in cells])
    if is_ours(metafunc, "known_row"):
        rows = dict(_known(config))
        metafunc.parametrize("known_row", list(rows.values()), indirect=True, ids=list(rows))


def is_ours(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test asks for our fixture, not for a stranger's of the same name."""
    definitions = metafunc._arg2fixturedefs.get(name, ())  # noqa: SLF001 - there is no other way
    return bool(definitions) and definitions[-1].func.__module__.startswith("d5test.fixtures.")


def _known(config: pytest.Config) -> Iterator[tuple[str, Any]]:
    """The pinned cases of all backends that are asked for, each once, with its row and an id."""
    selection = config.stash[SELECTION]
    every = {
        (row.source, pinned.check, repr(pinned.case)): (row, pinned)
        for client in config.stash[WORKERS].clients.values()
        for row, pinned in client.known.pinned
    }
    seen: Counter[str] = Counter()
    for row, pinned in every.values():
        if selection.wants(pinned):
            seen[pinned.id] += 1
            yield (f"{pinned.id}-{seen[pinned.id]}", (row, pinned))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the combinations of backends and cells that mean nothing; order the others.

    Where each new shape is compiled, the checks of a cell draw the same cases: they come last,
    one cell after the other, so that what one check compiled is there for the next.
    """
    asked = [item for item in items if _asked(config, item)]
    items[:] = sorted(asked, key=lambda item: _compiled_cell(config, item))
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and any(_compiled_cell(config, item) for item in items):
        reporter.showfspath = False  # the next test is in another file


def _compiled_cell(config: pytest.Config, item: pytest.Item) -> str:
    """The id of a test's cell on a backend that compiles each new shape; else empty."""
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    client = config.stash[WORKERS].clients.get(params.get("backend", ""))
    cell, compiles = params.get("cell"), client is not None and client.about.compiles_shapes
    return cell.id if isinstance(cell, Cell) and compiles else ""


def _asked(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether a combination of parameters means anything."""
    from d5test.checks import CHECKS

    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if not {"cell", "known_row", "backend"} & params.keys():
        return True
    backend, mark = params.get("backend", ""), item.get_closest_marker("check")
    client = config.stash[WORKERS].clients.get(backend)
    if client is None:
        return mark is None and "known_row" not in params
    if mark is not None and "cell" in params:
        check, cell = mark.args[0], params["cell"]
        return (
            config.stash[SELECTION].asks(check)
            and isinstance(cell, Cell)
            and client.about.mode in check.modes
            and _has(client.about, cell)
            and (cell.operator is not None or bool(table(config, check).inapplicable(backend)))
        )
    if "updater_kind" in params:
        return params["updater_kind"] in (*KINDS, *client.about.updaters)
    if "known_row" in params:
        known = params["known_row"]  # not a pair where there is no row at all
        return known in client.known.pinned and client.about.mode in CHECKS[known[1].check].modes
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Any:
    """After collection: something that needs a backend, and none given, is a usage error."""
    result = yield
    if session.config.stash.get(WITHOUT_BACKEND, False):
        if not hasattr(session.config, "workeroutput"):
            raise _no_backend()
        session.config.workeroutput["d5test_without_backend"] = True
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """xdist: a process that ended; it cannot stop the run by itself."""
    if getattr(node, "workeroutput", {}).get("d5test_without_backend"):
        node.config.stash[WITHOUT_BACKEND] = True


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Any:
    """xdist: the same usage error, for what its processes found."""
    result = yield
    config = session.config
    if config.stash.get(WITHOUT_BACKEND, False) and config.pluginmanager.hasplugin("dsession"):
        raise _no_backend()
    return result


def _no_backend() -> pytest.UsageError:
    from d5test.client import registry

    installed = ", ".join(registry.installed()) or "none that d5test knows"
    return pytest.UsageError(f"no --backend is given; installed: {installed}")
