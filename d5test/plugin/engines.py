"""Engines x (cases x dtypes): which tests of parallel training there are.

Requirements: `--engine`, `--mesh` and `--resume-mesh` are resolved before anything is collected,
and PyTorch is imported for tests that run only. Where no engine is named, one of them is judged on
few cases, so that a run of the whole suite stays short. Where all are, those that compile take
each case in one dtype, by turns.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from math import prod
from typing import Any

import pytest

from d5test.arguments import listed
from d5test.distributed.provider import launched
from d5test.engines.cases import CASES, DTYPES, USUAL
from d5test.engines.catalogue import ALL, COMPILED, ENGINES, mesh_of, needs
from d5test.names import BadName, load, resolve
from d5test.plugin.communicators import by_ranks
from d5test.plugin.selection import SELECTION, resolving

DEFAULT = "torch-ddp"
DRAWN = 2
"""Trainings of each dtype that are drawn for an engine."""
PATIENT = pytest.mark.deadline(120)
"""Ranks share cores. Those of gloo sleep while they wait: no idle rank is to blame."""


@dataclass(frozen=True)
class Named:
    """An engine as it was named, and what that stands for: a class, or where it is."""

    name: str
    what: Any

    @property
    def id(self) -> str:
        """For tests."""
        return self.name.rpartition(":")[2]

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""
        lacking = (item for item in needs(self.name).items() if not find_spec(item[0]))
        package, extra = next(lacking, ("", ""))
        return f"{self.name} needs {package}: pip install 'd5test[{extra}]'" if package else ""

    def make(self) -> Any:
        """The engine. A class of ours is imported now."""
        return (load(self.what) if isinstance(self.what, str) else self.what)()


ENGINES_ASKED = pytest.StashKey[tuple[Named, ...]]()
MESH, RESUME_MESH = pytest.StashKey[dict[str, int]](), pytest.StashKey[dict[str, int]]()


@resolving()
def pytest_configure(config: pytest.Config) -> None:
    """See that what is asked for exists."""
    asked = listed(config.getoption("--engine"))
    names = tuple(ENGINES) if ALL in asked else asked or (DEFAULT,)
    config.stash[ENGINES_ASKED] = engines = tuple(map(_named, names))
    for named in engines:
        if named.name in asked and named.missing:
            raise BadName(f"--engine: {named.missing}")
    config.stash[MESH] = _mesh(config, "--mesh")
    config.stash[RESUME_MESH] = other = _mesh(config, "--resume-mesh")
    ranks = {prod(mesh.values()) for mesh in (config.stash[MESH], other) if mesh}
    if len(ranks) > 1:
        raise BadName("--mesh and --resume-mesh are not of as many ranks")


def _mesh(config: pytest.Config, option: str) -> dict[str, int]:
    text = config.getoption(option)
    mesh, launch = mesh_of(text, option), launched()
    ranks = prod(mesh.values())
    if mesh and launch is not None and ranks != launch.size:
        raise BadName(f"{option}={text} has {ranks} ranks, mpirun started {launch.size}")
    return mesh


def _named(name: str) -> Named:
    what = resolve("engine", name, {**ENGINES, ALL: ""})
    if isinstance(what, str):
        return Named(name, what)
    if not isinstance(what, type):
        raise BadName(f"engine {name!r} is not a class")
    from d5test.engines.engine import OWED, Engine

    if not issubclass(what, Engine):
        raise BadName(f"engine {name!r} is not a subclass of d5test.engines.engine.Engine")
    if lacking := [m for m in OWED if getattr(what, m) is getattr(Engine, m)]:
        raise BadName(f"engine {name!r} has no {', no '.join(lacking)}: see docs/engines.md")
    try:
        signature(what).bind()
    except TypeError as error:
        raise BadName(f"engine {name!r} is made without arguments: {error}") from None
    return Named(name, what)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `engine`, and for what it trains or on how many ranks."""
    asked = {"engine_case", "drawn_training", "scale_engine"} & {*metafunc.fixturenames}
    if not asked:
        return
    config = metafunc.config
    few = not listed(config.getoption("--engine"))
    engines, marks = config.stash[ENGINES_ASKED], (pytest.mark.mpi, PATIENT)
    if "scale_engine" in asked:
        params = [pytest.param(named, id=named.id, marks=marks) for named in engines]
        metafunc.parametrize("engine", params)
        by_ranks(metafunc)
        return
    dtypes = [
        dtype for dtype in DTYPES[: 1 if few else None] if dtype in config.stash[SELECTION].dtypes
    ]
    whats: list[tuple[Any, str]]
    if "engine_case" in asked:
        named_cases = [case for name, case in CASES.items() if not few or name in USUAL]
        whats = [(case, case.name) for case in named_cases]
    else:
        # a run that names no engine asks for examples of other tests
        numbers = range(DRAWN if few else config.getoption("--examples") or DRAWN)
        whats = [(number, f"drawn-{number}") for number in numbers]
    everywhere = ALL in listed(config.getoption("--engine"))
    params = []
    for which, named in enumerate(engines):
        by_turns = everywhere and named.name.partition("-")[0] in COMPILED
        for number, (what, name) in enumerate(whats, which):
            one = dtypes[number % len(dtypes) :][:1] if dtypes else []
            for dtype in one if by_turns else dtypes:
                id_ = f"{named.id}-{name}-{dtype}"
                params.append(pytest.param(named, (what, dtype), id=id_, marks=marks))
    metafunc.parametrize(["engine", asked.pop()], params)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import on ranks what the first test would, before its deadline runs."""
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in session.items]
    asked = dict.fromkeys(given["engine"] for given in params if "engine" in given)
    ready = find_spec("torch") and not session.config.option.collectonly
    if asked and launched() is not None and ready:
        import d5test.engines.judging  # noqa: F401

        for named in asked:
            if isinstance(named.what, str) and not named.missing:
                load(named.what)
