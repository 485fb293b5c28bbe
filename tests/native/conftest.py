"""The sources beside the tests, compiled once, and runs of the operators' suite on them."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from d5test.known.reading import shipped
from d5test.native import bridges, compiler, library
from d5test.native.bridges import LIBRARIES
from d5test.native.library import Declared

HERE = Path(__file__).parent
SUITES = shipped("torch").parents[1]
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def faults() -> dict[str, Declared]:
    return library.declared(compiler.library(HERE / "faults.cpp"))


@pytest.fixture(scope="session")
def shapes() -> dict[str, Declared]:
    return library.declared(compiler.library(HERE / "shapes.cpp"))


class Ran:
    """A run of the suite: its status, what it said, and each test's outcome and message."""

    def __init__(self, done: subprocess.CompletedProcess[str], report: Path) -> None:
        self.rc = done.returncode
        self.text = done.stdout + done.stderr
        self.failed: dict[str, str] = {}
        self.passed: set[str] = set()
        for case in ET.parse(report).iter("testcase") if report.exists() else ():
            failure, skipped = case.find("failure"), case.find("skipped")
            if failure is not None:
                self.failed[case.get("name", "")] = failure.get("message", "") + str(failure.text)
            elif skipped is None:
                self.passed.add(case.get("name", ""))


def run_suite_in(
    folder: Path, *options: str, backend: str = "numpy", where: str = "operators"
) -> Ran:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [
        sys.executable, "-m", "pytest", str(SUITES / where), f"--backend={backend}",
        "-p", "no:cacheprovider", "--junit-xml=run.xml", *options,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )  # fmt: skip
    return Ran(done, folder / "run.xml")


@pytest.fixture(scope="session")
def run_suite() -> Callable[..., Ran]:
    """Call it with a folder and options of pytest: a run of the operators' suite there."""
    return run_suite_in


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., Ran]:
    """The same in the test's own folder."""
    return partial(run_suite_in, tmp_path)


@pytest.fixture
def judged_by_the_suite(suite: Callable[..., Ran]) -> Callable[[str, str], None]:
    """Call it with a backend and a check: right ones pass, what is wrong is found and named."""

    def run(backend: str, check: str) -> None:
        ran = suite(
            f"--native={HERE / 'faults.cpp'}", "--operator=Right,WrongGradient,WritesBehind",
            "--dtype=float32", "--examples=4", f"--check=forward,{check}", backend=backend,
        )  # fmt: skip
        assert f"test_{check}[{backend}-Right-float32]" in ran.passed, ran.text
        assert f"test_{check}[{backend}-WrongGradient-float32]" in ran.failed
        assert all("-Right-" not in name for name in ran.failed)
        beyond = [text for name, text in ran.failed.items() if "WritesBehind" in name]
        assert beyond
        assert all("bytes beyond the last of output y" in text for text in beyond)

    return run


@pytest.fixture
def mixed_judged_by_the_suite(suite: Callable[..., Ran]) -> Callable[[str, str], None]:
    """The same of operators with integers, masks and what is optional."""
    wrong = {
        "gradient": ("forward-IgnoresMask", "gradient-LastOfEach", "gradient-ForgetsBias"),
        "compiled": ("compiled-LastOfEach", "compiled-ForgetsBias"),
    }

    def run(backend: str, check: str) -> None:
        ran = suite(
            f"--native={HERE / 'mixed.cpp'}", "--dtype=float32", "--examples=40",
            f"--check=forward,{check}", backend=backend,
        )  # fmt: skip
        for operator in ("Embedding", "MaskedSoftmax", "Normalised"):
            assert f"test_{check}[{backend}-{operator}-float32]" in ran.passed, ran.text
        for what, operator in (name.split("-") for name in wrong[check]):
            assert f"test_{what}[{backend}-{operator}-float32]" in ran.failed, ran.text

    return run


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a worker is told of: the template and the sources beside the tests, compiled."""
    path = tmp_path_factory.mktemp("template") / "ipow.cpp"
    text = (ROOT / "d5test" / "native" / "templates" / "operator.cpp.txt").read_text()
    path.write_text(text.replace("NAME", "IPow"))
    names = ("shapes.cpp", "faults.cpp", "ports.cpp", "mixed.cpp")
    sources = (path, *(HERE / name for name in names))
    return bridges.environment(compiler.library(source) for source in sources)[LIBRARIES]


@pytest.fixture
def says(libraries: str) -> Callable[[str], str]:
    """Run lines where those libraries are known, in a process of its own: what they print."""

    def run(code: str) -> str:
        env = os.environ | {
            LIBRARIES: libraries, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
