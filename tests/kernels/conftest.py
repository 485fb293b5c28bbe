"""A small library of ours with known functions, and a backend that computes with it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from d5test.case import Operator
from d5test.client.client import WorkerClient
from d5test.native import compiler

HERE = Path(__file__).parent
Start = Callable[..., WorkerClient]


@dataclass(frozen=True, kw_only=True, repr=False)
class Act(Operator):
    """What `compiled` does."""

    deed: str = ""


@pytest.fixture(scope="session")
def libraries() -> dict[str, Path]:
    """The library as it was compiled, and without its names."""
    source = HERE / "entered.cpp"
    return {
        "named": compiler.library(source),
        "stripped": compiler.library(source, flags=("-s",)),
    }


@pytest.fixture
def start(libraries: dict[str, Path]) -> Iterator[Start]:
    """`start("Compiled", "stripped")`: a client of a class of compiled.py, with a library."""
    with ExitStack() as stack:

        def started(
            name: str = "Compiled", library: str = "named", **more: object
        ) -> WorkerClient:
            environment = {"D5TEST_ENTERED": str(libraries[library])}
            target = f"{HERE / 'compiled.py'}:{name}"
            client = WorkerClient(target, environment=environment, **more)  # type: ignore[arg-type]
            return stack.enter_context(client)

        yield started
