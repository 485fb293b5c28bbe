"""`compared`: the command on two sides, with what it printed."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from d5test.cli import main


class Answer(NamedTuple):
    """Exit status and output."""

    status: int
    out: str
    err: str

    @property
    def found(self) -> Any:
        return json.loads(self.out)

    def verdict(self, benchmark: str, metric: str) -> dict[str, Any]:
        """The one decision on a metric of a benchmark."""
        (decision,) = [
            d
            for d in self.found["decisions"]
            if d["benchmark"] == benchmark and d["metric"]["name"] == metric
        ]
        return decision


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Call it with OLD, NEW and options; the output is JSON unless another format is asked for."""

    def run(*arguments: object) -> Answer:
        given = [str(a) for a in arguments]
        formats = [] if any(a.startswith("--format") for a in given) else ["--format=json"]
        capsys.readouterr()
        status = main(["compare", *given, *formats])
        return Answer(status, *capsys.readouterr())

    return run
