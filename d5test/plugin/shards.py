"""`--shard=I/N` runs one part of the tests, `--outcomes=FILE` writes what came of each.

Requirements: the N parts together are all tests, each once, whoever runs them: alone, xdist,
ranks. The file is written as it happens, and by the process that reports. A part can be merged
with parts of the same versions and options alone, so the file has all of them.
"""

import importlib.metadata
import json
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from d5test import __version__
from d5test.plugin.elsewhere import plain
from d5test.plugin.workers import DESCRIBED
from d5test.record import environment
from d5test.shards import SCHEMA, Shard, digest

WHOLE = pytest.StashKey[tuple[int, str]]()
"""How many tests there are in all shards, and their `digest`."""
FREE = (
    "shard", "outcomes", "replay", "reproducers", "record_known", "np", "on", "workers",
    "answer_within", "budget", "deadline",
    "gate_old", "gate_new", "gate_effect", "gate_budget", "gate_unsure", "gate_accept",
    "gate_results", "gate_report", "gate_self_test",
)  # fmt: skip
"""Options of d5test that change neither which tests there are nor what is drawn for them."""
COMPARED = (
    "backend", "device", "operator", "optimizer", "recipe", "dtype", "check", "examples",
    "data_sets", "sizes", "seed", "network", "in_process", "precision", "threads", "native",
    "native_sanitize", "known", "problems", "comm", "compressor", "collective", "engine", "mesh",
    "resume_mesh", "bytes", "cold", "control",
)  # fmt: skip
"""Those that do."""
PYTEST = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
"""Those of pytest that choose tests."""
PACKAGES = ("hypothesis", "ml_dtypes", "numpy", "onnx", "pytest", "scipy")
"""What draws and judges."""
SAME = ("name", "framework", "version", "device", "mode", "packages")
"""What is the same of a backend on all machines."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Open the file, once the backends are known; say the shard where JUnit has a place for it."""
    path, part = config.getoption("--outcomes"), config.getoption("--shard")
    if (path or part) and config.getoption("dist", "no") == "loadgroup":
        raise pytest.UsageError("--dist=loadgroup renames tests: leave out --shard and --outcomes")
    if path and not config.option.collectonly and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(config, Path(path)), "d5test-outcomes")
    if part:
        from _pytest.junitxml import xml_key

        xml = config.stash.get(xml_key, None)
        if xml is not None:
            xml.add_global_property("d5test-shard", str(part))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which shard this is."""
    part: Shard | None = config.getoption("--shard")
    return None if part is None else f"shard {part.number} of {part.count}, by the tests' ids"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of other shards out."""
    config.stash[WHOLE] = len(items), digest(item.nodeid for item in items)
    part: Shard | None = config.getoption("--shard")
    if part is None:
        return
    others = [item for item in items if not part.holds(item.nodeid)]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """xdist: let the process that distributes know of all tests."""
    result = yield
    output = getattr(session.config, "workeroutput", None)
    if output is not None and WHOLE in session.config.stash:
        output["d5test_whole"] = session.config.stash[WHOLE]
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """xdist: a process that ended."""
    whole = getattr(node, "workeroutput", {}).get("d5test_whole")
    if whole is not None:
        node.config.stash[WHOLE] = tuple(whole)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Which shard was timed."""
    part = config.getoption("--shard")
    if part:
        output_json["shard"] = str(part)


class Outcomes:
    """Writes the file of --outcomes."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self.config = config
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise pytest.UsageError(f"--outcomes={path}: {error.strerror}") from None
        part = config.getoption("--shard")
        where = {**environment(), "backends": config.stash[DESCRIBED]}
        about, shard = describe(config), str(part) if part else None
        self._write("run", schema=SCHEMA, shard=shard, about=about, where=where)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What there is to do."""
        if session.items:
            self._write("collected", ids=[item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """xdist: likewise; every process collects the same."""
        self._write("collected", ids=ids)

    def heard(self, ids: list[str]) -> None:
        """Likewise, where others collect."""
        self._write("collected", ids=ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be collected."""
        if report.failed:
            self._report(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase that is over."""
        self._report(report)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Let go of the file."""
        self._file.close()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """The run is over, whatever others make of its status."""
        result = yield
        if WHOLE in self.config.stash:
            tests, sha256 = self.config.stash[WHOLE]
            self._write("whole", tests=tests, sha256=sha256)
        self._write("end", status=int(session.exitstatus))
        return result

    def _report(self, report: Any) -> None:
        node = vars(report).pop("node", None)  # xdist's, which no JSON has
        self._write("report", report=plain(self.config, report))
        if node is not None:
            report.node = node

    def _write(self, event: str, **what: Any) -> None:
        self._file.write(json.dumps({"event": event, **what}, default=str) + "\n")
        self._file.flush()


def describe(config: pytest.Config) -> Mapping[str, Any]:
    """What shards of one run have in common."""
    option, root = vars(config.option), config.rootpath
    places = sorted({os.path.relpath(str(place), root) for place in config.args})
    chosen = {name: option.get(name) for name in (*COMPARED, *PYTEST)}
    return {
        "d5test": __version__,
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "backends": {
            name: {field: facts[field] for field in SAME}
            for name, facts in config.stash[DESCRIBED].items()
        },
        "tests": places,
        "options": {name: value for name, value in chosen.items() if value not in (None, [], "")},
    }
