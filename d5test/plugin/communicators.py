"""Communicators x (subjects x dtypes): which tests of collectives and optimizers there are.

Requirements: `--comm` and `--collective` are resolved before anything is collected; by default
virtual ranks are judged, and under mpirun those that it started. A test that needs mpirun has
pytest-mpi's marker, whether or not that plugin is installed. Ids come from ordered lists, the same
on each rank.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.distributed.provider import launched
from d5test.names import BadName, chosen, resolve
from d5test.plugin.outcomes import carried
from d5test.plugin.selection import SELECTION, resolving
from d5test.reference.semantics import COLLECTIVES

MEASURED = "d5test-measured"
"""The name of the entry in a report's `user_properties`."""
LIBRARY = "library"
"""What a library chooses for itself: the one subject that is no schedule."""
PATIENT = pytest.mark.deadline(60)
"""Ranks that share cores take turns to import a framework, and to make each case's data."""
AWAKE = pytest.mark.idle(12)
"""Where ranks that wait for each other poll, one that does nothing is the one to blame. Those of
gloo sleep until others come."""


@dataclass(frozen=True)
class Kind:
    """What has to be installed for a communicator, what it runs, and how its tests are marked.

    collectives
          whether the library has others than an allreduce
    hooks  whether it has hooks that compress gradients
    make  makes a stranger's, from an MPI communicator of all ranks, or from None without mpirun
    """

    needs: tuple[str, ...]
    schedules: bool
    library: bool
    collectives: bool = True
    marks: tuple[pytest.MarkDecorator, ...] = ()
    make: Callable[[Any], Any] | None = None
    hooks: bool = False


KINDS = pytest.StashKey[dict[str, Kind]]()
COMPRESSORS = pytest.StashKey[Sequence[str]]()
"""The names that --compressor gives."""
COMMUNICATORS = {
    "virtual": Kind((), schedules=True, library=False),
    "mpi": Kind(
        ("mpi4py",), schedules=True, library=True, marks=(pytest.mark.mpi, PATIENT, AWAKE)
    ),
    "gloo": Kind(
        ("torch", "mpi4py"),
        schedules=False,
        library=True,
        marks=(pytest.mark.mpi, PATIENT),
        hooks=True,
    ),
}


@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and see that what is asked for exists."""
    config.addinivalue_line("markers", "collective(name): the check of this test, on all ranks")
    # without it, pytest-mpi skips what is marked
    config.option.with_mpi = True
    default = "mpi" if launched() else "virtual"
    names = listed(config.getoption("--comm")) or (default,)
    config.stash[KINDS] = {name: _kind(name) for name in names}
    config.stash[COMPRESSORS] = listed(config.getoption("--compressor"))
    if config.stash[COMPRESSORS]:
        from d5test.distributed.compression import made

        for name in config.stash[COMPRESSORS]:
            made(name)
    chosen("collective", listed(config.getoption("--collective")), COLLECTIVES)


def _kind(name: str) -> Kind:
    """What `--comm` names: one of ours, an installed one, `module:Name` or `./file.py:Name`."""
    if name in COMMUNICATORS:
        missing = [package for package in COMMUNICATORS[name].needs if not find_spec(package)]
        if missing:
            raise BadName(f"--comm={name} needs {missing[0]}: pip install 'd5test[mpi]'")
        return COMMUNICATORS[name]
    make = resolve("communicator", name, COMMUNICATORS)
    if not isinstance(make, type):  # what it runs is read from the class, before it is made
        raise BadName(f"communicator {name!r} is not a class")
    marks = (AWAKE,) if getattr(make, "polls", False) else ()
    return Kind(
        (), schedules=hasattr(make, "run"), library=True,
        collectives=hasattr(make, "collective"), marks=marks, make=make,
    )  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Parametrise what asks for `comm`, and for `part`, `learner` or `nbytes` beside it.

    The last comes after what a test is marked with, so that its ids begin with that.
    """
    if "comm" in metafunc.fixturenames:
        _parametrise(metafunc)
    yield
    if "nbytes" in metafunc.fixturenames:
        metafunc.parametrize("nbytes", metafunc.config.getoption("--bytes"))


def _parametrise(metafunc: pytest.Metafunc) -> None:
    config, asked = metafunc.config, metafunc.fixturenames
    kinds = config.stash[KINDS]
    comms = [pytest.param(name, marks=kind.marks, id=name) for name, kind in kinds.items()]
    metafunc.parametrize("comm", comms, indirect=True)
    if "part" in asked:
        mark = metafunc.definition.get_closest_marker("collective")
        parts = _parts(config, mark.args[0]) if mark else []
        ids = [f"{subject.rpartition(':')[2]}-{dtype}" for subject, dtype in parts]
        metafunc.parametrize("part", parts, ids=ids)
    if "learner" in asked:
        metafunc.parametrize("learner", _learners(config, timed="scale" in asked))
    if "scale" in asked:
        by_ranks(metafunc)


def by_ranks(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test of scaling: one rank first, which is the base case of the others."""
    from d5test.distributed.scaling import MODES, sizes

    launch = launched()
    metafunc.parametrize("mode", MODES)
    metafunc.parametrize("ranks", sizes(launch.size if launch else 1))


def _parts(config: pytest.Config, check: str) -> list[tuple[str, str]]:
    """Subjects, algorithms, optimizers or compressors, x dtypes; `--dtype` names floats."""
    from d5test.distributed.compression import COMPRESSION, asked
    from d5test.distributed.division import DIVISION
    from d5test.distributed.hooked import HOOKED
    from d5test.distributed.optimizers import DISTRIBUTED

    row, selection = property_of(check), config.stash[SELECTION]
    dtypes = [d for d in row.dtypes if not selection.dtype_names or d in selection.dtypes]
    left_out = DISTRIBUTED.keys() - set(_optimizers(config))
    named = asked(row, config.stash[COMPRESSORS]) if check in COMPRESSION else row.subjects
    wanted = listed(config.getoption("--collective"))
    if wanted and check in {*COMPRESSION, *HOOKED, *DIVISION}:  # these are no collectives
        return []
    subjects = [
        subject
        for subject in named
        if subject not in left_out
        if subject in DISTRIBUTED or not wanted or _collective(subject) in wanted
    ]
    return [(subject, dtype) for subject in subjects for dtype in dtypes]


def _collective(subject: str) -> str:
    """The collective of `broadcast-binomial`; without a name it is an allreduce."""
    return subject.rpartition("-")[0] or "allreduce"


def _optimizers(config: pytest.Config) -> list[str]:
    """The distributed optimizers that --optimizer names, or all of them."""
    from d5test.distributed.optimizers import DISTRIBUTED

    asked = listed(config.getoption("--optimizer"))
    return [name for name in DISTRIBUTED if not asked or name in asked]


def _learners(config: pytest.Config, *, timed: bool) -> list[str]:
    """Those that train networks, which are in float32; timed are those whose steps are alike.

    Where --optimizer names none, variants are left out: each takes seconds.
    """
    from d5test.distributed.optimizers import CONSISTENT, NAMED

    if "float32" not in config.stash[SELECTION].dtypes:
        return []
    unasked = () if listed(config.getoption("--optimizer")) else NAMED
    names = [name for name in _optimizers(config) if name not in unasked]
    return [name for name in names if not timed or name in CONSISTENT]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take out what a communicator does not run."""
    items[:] = [item for item in items if _exists(item)]


def _exists(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    if "comm" not in params or not {"part", "learner"} & params.keys():
        return True
    kind = item.config.stash[KINDS][params["comm"]]
    part = params.get("part", ("", ""))
    if not isinstance(part, tuple):  # nothing is left of the subjects: pytest says so
        return True
    if part[0].endswith("_hook"):
        return kind.hooks
    name, _, algorithm = part[0].rpartition("-")
    if algorithm != LIBRARY:
        return kind.schedules
    return kind.library and (not name or kind.collectives)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import on ranks what the first test would, before its deadline runs."""
    judged = any(item.get_closest_marker("collective") for item in session.items)
    if judged and launched() is not None and not session.config.option.collectonly:
        import d5test.distributed.checks
        import d5test.exploration.explore  # noqa: F401


def property_of(check: str) -> Any:
    """The check of this name."""
    # the bars of level 0 come with these: other suites pay nothing for them
    from d5test.distributed.checks import COLLECTIVE
    from d5test.distributed.compression import COMPRESSION
    from d5test.distributed.division import DIVISION
    from d5test.distributed.hooked import HOOKED
    from d5test.distributed.movement import MOVEMENT
    from d5test.distributed.probes import DESCENT
    from d5test.distributed.sparse import SPARSE

    return {**COLLECTIVE, **MOVEMENT, **DESCENT, **COMPRESSION, **HOOKED, **SPARSE, **DIVISION}[
        check
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was measured, largest first; from reports alone."""
    lines = set(map(str, carried(terminalreporter, MEASURED)))
    for line in sorted(lines, key=lambda text: -float(text.split()[0])):
        terminalreporter.write_line(line)
