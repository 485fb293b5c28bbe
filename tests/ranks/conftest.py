"""Runs of pytest under mpirun, each in a process of its own with a hard limit."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from d5test.plugin.ranks.supervisor import ALLOWED, mpirun

SUITES = Path(__file__).with_name("suites")
LIMIT = 100.0
"""Seconds until a run counts as hung, on a machine that others use as well."""


@dataclass(frozen=True)
class Ran:
    """A run: its exit status, what it printed, and the tests by outcome."""

    status: int
    printed: str
    outcomes: dict[str, str]


def outcomes(junit: Path) -> dict[str, str]:
    """`passed`, or the name of the element that says otherwise, by the name of the test."""
    if not junit.exists():
        return {}
    cases = ET.parse(junit).iter("testcase")
    return {case.get("name", ""): next((e.tag for e in case), "passed") for case in cases}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """Call it with a suite and the arguments of pytest; `ranks=0` calls pytest without mpirun."""
    program = mpirun()
    if program is None:
        pytest.skip("there is no mpirun: pip install mpi4py mpich pytest-mpi")

    empty = tmp_path / "pytest.ini"
    empty.touch()

    def call(suite: str, *arguments: str, ranks: int = 3, **variables: str) -> Ran:
        junit = tmp_path / "junit.xml"
        junit.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-p", "d5test.plugin", "-p", "no:cacheprovider"]
        command += ["-c", str(empty), f"--rootdir={SUITES}", str(SUITES / f"{suite}.py")]
        # what xdist says to its processes is not meant for these
        own = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
        ran = subprocess.run(
            [*([program, "-n", str(ranks)] if ranks else []), *command,
             f"--junitxml={junit}", "-o", "junit_logging=no", *arguments],
            env={**ALLOWED, **own, "OMP_NUM_THREADS": "1", **variables},
            cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        return Ran(ran.returncode, ran.stdout + ran.stderr, outcomes(junit))

    return call
