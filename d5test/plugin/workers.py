"""One process for each backend that the command line names.

Requirements: started before anything is collected, since what a backend is and which rows it has
decides what there is to test, and since a framework that cannot be imported is a usage error;
never for --help and the like, nor without --backend. The process that only distributes tests
(xdist's, or that of --np) starts them to see that they start, and stops them.
"""

import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from d5test.backends.updater import own_rules
from d5test.case import FLOATS, Operator
from d5test.client.messages import RowInfo
from d5test.dtypes import WHOLE
from d5test.names import hint
from d5test.plugin import native
from d5test.plugin.selection import SELECTION, Selection, resolving
from d5test.record import describe_backend
from d5test.strategies.sizes import MIXED, SMALL

BROUGHT = pytest.StashKey[Mapping[str, str]]()
"""What tells a worker of update rules that are a user's own."""
WORKERS = pytest.StashKey["Workers"]()
GATING = pytest.StashKey[Any]()
"""The gate (`d5test.plugin.gating.Gating`) of a run that is one."""
DESCRIBED = pytest.StashKey[dict[str, Mapping[str, Any]]]()
"""What a record says of each backend."""
LIMITS = pytest.StashKey[threadpool_limits]()
"""The judge's own BLAS on one thread: its products are small, and several threads take twice the
CPU time for them, beside workers that have their own."""
LONG = 20.0
"""Seconds after which a line says which import is waited for."""
QUERIES = ("help", "version", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow")
"""Options under which pytest runs no test."""


class Workers:
    """The clients of the backends, by the names they were given by, and their known failures."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.clients: dict[str, Any] = {}

    def open(self, selection: Selection) -> None:
        """Start the workers; UsageError with one line for the first that cannot start.

        All are started before the first is asked: frameworks are imported at the same time.
        """
        for name in selection.backends:
            self.clients[name] = self._started(name)
        for name, client in self.clients.items():
            self._ready(name, client)
        require_rows(self.clients, selection, own_rules(self.config.stash[BROUGHT]))
        if GATING in self.config.stash:
            self._try(self.config.stash[GATING].versions.new)

    def client(self, name: str) -> Any:
        """The client of a backend; it is started if the command line does not name it.

        UsageError with one line if it cannot.
        """
        if name not in self.clients:
            self.clients[name] = self._ready(name, self._started(name))
        return self.clients[name]

    def close(self) -> None:
        """End all workers."""
        while self.clients:
            self.clients.popitem()[1].close()

    def several(self, name: str, count: int) -> list[Any]:
        """So many of them, which share nothing. All are started before the first is asked."""
        clients = [self._started(name, fork=False) for _ in range(count)]
        return [self._ready(name, client) for client in clients]

    def _try(self, version: str) -> None:
        """See that there is such a backend where the gate's new version is named as one.

        A name that was mistyped is none. What is there and cannot be imported is a regression.
        """
        from d5test.gate.versions import names_backend
        from d5test.timed import BROKEN
        from d5test.worker.worker import NoSuchBackend

        if names_backend(version):
            with opened(self.config, version) as client:
                try:
                    client.about  # noqa: B018 - waits until the framework is imported
                except BROKEN as error:
                    if getattr(error, "kind", "") == NoSuchBackend.__name__:
                        raise pytest.UsageError(" ".join(str(error).split())) from None

    def _started(self, name: str, *, fork: bool = True) -> Any:
        with self._usable(name):
            if GATING in self.config.stash:
                name = self.config.stash[GATING].versions.name("old", name)
            return opened(self.config, name, fork=fork)

    def _ready(self, name: str, client: Any) -> Any:
        late = threading.Timer(LONG, self._tell, [f"d5test: {name} is still being imported"])
        late.daemon = True
        late.start()
        try:
            with self._usable(name):
                client.about  # noqa: B018 - waits until the framework is imported
        finally:
            late.cancel()
        client.known = self.config.stash[SELECTION].known(client.about)
        return client

    def _tell(self, line: str) -> None:
        """Print it now, whatever is captured."""
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(line, file=sys.stderr, flush=True)

    @contextmanager
    def _usable(self, name: str) -> Iterator[None]:
        """Within: what makes a backend unusable is a UsageError of one line."""
        from d5test.backends.base import Unsupported
        from d5test.client.messages import FAILURES, BackendFailed, UnknownBackend

        try:
            yield
        except UnknownBackend as error:
            first, *others = str(error).splitlines()
            more = "" if "did you mean" in first else "".join(f"; {line}" for line in others)
            raise pytest.UsageError(first + more) from None
        except BackendFailed as error:
            raise pytest.UsageError(" ".join(str(error).split())) from None
        except (*FAILURES, Unsupported) as error:
            device, why = self.config.getoption("--device"), " ".join(str(error).split())
            where = f"{name} on {device}" if device else name
            raise pytest.UsageError(f"{where} cannot be used: {why}") from None


def require_rows(clients: Mapping[str, Any], selection: Selection, rules: Collection[str]) -> None:
    """Refuse rows that name no operator or dtype, and operators named that no backend has.

    `rules` are the update rules of a user's own, whose steps are rows, too.
    """
    from d5test.checks import CHECKS

    modes = sorted({mode for check in CHECKS.values() for mode in check.modes})
    for name, client in clients.items():
        if client.about.mode not in modes:
            raise pytest.UsageError(
                f"{name} has the mode {client.about.mode!r}; there are {', '.join(modes)}"
            )
        about = client.about
        every = [
            (f"{name}'s row for {operator}", operator, row) for operator, row in about.rows.items()
        ]
        every += [
            (f"{name}'s form {form!r} of {operator}", operator, row)
            for operator, forms in about.forms.items()
            for form, row in forms.items()
        ]
        for where, operator, row in every:
            require_dtypes(where, row.dtypes)
            if operator in selection.every_operator:
                require_conditions(where, selection.every_operator[operator], row)
    rows = {name: {**c.about.forms, **c.about.rows} for name, c in clients.items()}
    named = set().union(*rows.values())
    strange = named - selection.every_operator.keys() - set(rules)
    if strange:
        from d5test.reference.steps import STEPS

        strange -= STEPS.keys()
    if strange:
        import onnx.defs

        strange -= {schema.name for schema in onnx.defs.get_all_schemas()}
    for row in sorted(strange):
        backend = next(name for name, table in rows.items() if row in table)
        meant = hint(row, selection.every_operator)
        meant = meant if "did you mean" in meant else "an operator of your own needs --operator"
        raise pytest.UsageError(
            f"{backend} has a row for {row!r}, which is not an operator: {meant}"
        )
    for operator in selection.operators if selection.operator_names and rows else ():
        if operator not in named:
            raise pytest.UsageError(
                f"no row for {operator} in {', '.join(rows)}: there is nothing to judge; "
                "docs/extending.md says how to add one"
            )


def require_dtypes(where: str, dtypes: Collection[str]) -> None:
    """Refuse a row that declares a dtype of another name than ours."""
    strange = [dtype for dtype in dtypes if dtype not in FLOATS]
    if strange and all(isinstance(dtype, str) and len(dtype) == 1 for dtype in dtypes):
        text = "".join(dtypes)
        raise pytest.UsageError(f"{where}: dtypes={text!r} is a string, not a tuple of names")
    if strange:
        known = ", ".join(FLOATS)
        raise pytest.UsageError(f"{where}: unknown dtype {strange[0]!r}; there are {known}")


def require_conditions(where: str, operator: type[Operator], row: RowInfo) -> None:
    """Refuse a row or form that no case of the operator can be asked, or judged by."""
    from d5test.known.where import validate

    attributes = {field.name for field in fields(operator)}
    try:
        validate(row.where, operator)
        if strange := row.attributes.keys() - attributes:
            raise ValueError(f"attributes: {hint(min(strange), attributes)}")
        if strange := set(row.promotes) - set(WHOLE):
            raise ValueError(f"promotes: {hint(min(strange), WHOLE)}")
        if row.contract:
            require_contract(operator, row.contract)
    except ValueError as error:
        raise pytest.UsageError(f"{where}: {error}") from None


def require_contract(operator: type[Operator], contract: str) -> None:
    """Raise `ValueError` for a contract that is none of this operator."""
    from d5test.reference.formulas import FORMULAS

    known = [name for name, operators in FORMULAS.items() if operator in operators]
    if contract not in known:
        raise ValueError(f"unknown contract {contract!r}: {hint(contract, known)}")


def opened(config: pytest.Config, name: str, *, fork: bool = True) -> Any:
    """The client of a backend as the command line wants it; it is started when it is first asked.

    Without `fork` its process shares nothing with another's, not even the layout of memory.
    """
    from d5test.client.client import InProcessClient, WorkerClient
    from d5test.worker.service import TF32

    option, selection = config.getoption, config.stash[SELECTION]
    spec, device = native.spec(name, selection.natives), option("--device") or ""
    brought = config.stash[BROUGHT]
    environment = native.environment(selection.natives, sanitize=selection.sanitize)
    environment |= {TF32: "1"} if option("--precision") == "tf32" else {}
    environment.update(brought)
    if any(one.source.suffix == ".cu" for one in selection.natives):
        fork = False  # what has loaded a library of CUDA cannot use CUDA after a fork
    client: Any
    if option("--in-process"):
        os.environ.update(environment)
        client = InProcessClient(spec, device)
    else:
        client = WorkerClient(
            spec,
            device,
            timeout=option("--answer-within"),
            threads=option("--threads"),
            fork=fork,
            environment=environment,
        )
    client.precision = option("--precision")
    return client


@pytest.hookimpl(trylast=True)
@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Start the workers of the backends that are named."""
    workers = config.stash[WORKERS] = Workers(config)
    described: dict[str, Mapping[str, Any]] = {}
    config.stash[DESCRIBED] = described
    if config.getoption("--sizes") in (MIXED, SMALL):
        config.stash[LIMITS] = threadpool_limits(1, user_api="blas")
    selection = config.stash[SELECTION]
    if not selection.backends or any(getattr(config.option, query, None) for query in QUERIES):
        return
    try:
        workers.open(selection)
    except pytest.UsageError:
        workers.close()
        raise
    described |= {n: describe_backend(client.about) for n, client in workers.clients.items()}
    if distributes(config):
        workers.close()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was started."""
    if WORKERS in config.stash:
        config.stash[WORKERS].close()
    if LIMITS in config.stash:
        config.stash[LIMITS].restore_original_limits()


def distributes(config: pytest.Config) -> bool:
    """Whether this process collects no test itself, but leaves that to others."""
    if config.option.collectonly:
        return False
    xdist = not hasattr(config, "workerinput") and config.getoption("dist", "no") != "no"
    return bool(config.getoption("--np")) or xdist
