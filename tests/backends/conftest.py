"""Backends that are small and right, or wrong on purpose, and the operators to ask them with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from d5test.case import Operator
from d5test.client.client import WorkerClient
from d5test.client.messages import Feed

HERE = Path(__file__).parent
Start = Callable[..., WorkerClient]


@dataclass(frozen=True, kw_only=True, repr=False)
class Mul(Operator):
    """The product."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Scale(Operator):
    """A multiple."""

    factor: float = 2.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Halves(Operator):
    """Both halves."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Take(Operator):
    """Elements along an axis."""


@dataclass(frozen=True, kw_only=True, repr=False)
class UndeclaredTake(Operator):
    """The same, by a row that does not say that its plan reads the axis."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Act(Operator):
    """What `wrong_calls` does."""

    deed: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Slow(Operator):
    """What `wrong_calls` takes 0.6 s for."""


@pytest.fixture(scope="session")
def ops() -> SimpleNamespace:
    named = (Mul, Scale, Halves, Take, UndeclaredTake, Act, Slow)
    return SimpleNamespace(**{operator.__name__: operator for operator in named})


@pytest.fixture
def start() -> Iterator[Start]:
    """`start("tiny", "Tiny", **options)`: a client of a class in a file of this folder."""
    with ExitStack() as stack:
        yield lambda file, name="Tiny", **options: stack.enter_context(
            WorkerClient(f"{HERE / file}.py:{name}", **options)
        )


@pytest.fixture(scope="module")
def tiny() -> Iterator[WorkerClient]:
    with WorkerClient(f"{HERE / 'tiny.py'}:Tiny") as client:
        yield client


@pytest.fixture(scope="module")
def wrong() -> Iterator[WorkerClient]:
    with WorkerClient(f"{HERE / 'wrong_calls.py'}:Wrong", timeout=10) as client:
        yield client


@pytest.fixture(scope="session")
def do() -> Callable[..., Any]:
    """`do(client, deed)`: the result of the operator `Act` on the vector (1, 2, 3)."""

    def done(client: Any, deed: str) -> Any:
        x = np.arange(1, 4, dtype=np.float32)
        (result,) = client.run(Act(deed=deed), [Feed((x,))])
        return result

    return done
