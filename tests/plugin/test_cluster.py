"""`--on=dask`: the outcomes are those of one process, whatever dies."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from d5test.shards import read
from tests.nightly import thinned
from tests.plugin.conftest import ROOT, Suite

pytest.importorskip("distributed")

KILLERS = """
import os
import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WORKER, SELF = os.getppid(), os.getpid()


def first(name):
    try:
        (HERE / name).mkdir()
    except FileExistsError:
        return False
    return True


@pytest.fixture(scope="session")
def built():
    with (HERE / "built").open("a") as file:
        file.write(f"{SELF} ")
    return SELF


@pytest.mark.parametrize("n", range(12))
def test_right(built, n):
    assert built == os.getpid()


def test_wrong():
    assert 2 * 3 == 7


def test_skipped():
    pytest.skip("it is Tuesday")


@pytest.mark.xfail(strict=True)
def test_known():
    assert 2 * 3 == 7


def test_dies_once():
    if first("dies_once"):
        os.kill(SELF, signal.SIGKILL)


def test_crashes():
    os.kill(SELF, signal.SIGSEGV)


def test_kills_its_worker_once():
    if first("kills_its_worker_once"):
        os.kill(WORKER, signal.SIGKILL)


def test_kills_its_worker():
    os.kill(WORKER, signal.SIGKILL)
"""
OUTCOMES = {
    **{f"test_right[{n}]": "passed" for n in range(12)},
    "test_wrong": "failed",
    "test_skipped": "skipped",
    "test_known": "skipped",
    "test_dies_once": "passed",
    "test_crashes": "failed",
    "test_kills_its_worker_once": "passed",
    "test_kills_its_worker": "failed",
}


def run(pytester: pytest.Pytester, text: str, *options: str) -> Any:
    """What pytest says of a file of tests, with the plugin."""
    pytester.path.joinpath("test_killers.py").write_text(text)
    return pytester.run(
        sys.executable, "-m", "pytest", "-p", "d5test.plugin", "test_killers.py", *options,
        timeout=200,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def test_whatever_dies_nothing_is_lost_or_counted_twice(pytester: pytest.Pytester) -> None:
    ran = run(
        pytester, KILLERS, "--on=dask", "--workers=2", "--outcomes=run.json",
        "--junitxml=run.xml",
    )  # fmt: skip
    text = "\n".join([*ran.outlines, *ran.errlines])
    assert ran.ret == 1, text
    calls = [
        (report["nodeid"].partition("::")[2], report["outcome"])
        for report in read("run.json").reports
        if report["when"] == "call"
    ]
    assert len(calls) == len(OUTCOMES)
    assert dict(calls) == OUTCOMES
    names = [str(case.get("name")) for case in ET.parse("run.xml").iter("testcase")]
    assert sorted(names) == sorted(OUTCOMES)
    assert "SIGSEGV: the process died that ran it, 2 times" in text
    assert "Fatal Python error: Segmentation fault" in text
    assert "a worker of Dask died whenever it ran this test, and nothing else" in text
    # how many processes there were is a matter of what each worker had when it died
    built = Path("built").read_text().split()
    assert len(built) == len(set(built))


def test_a_worker_keeps_what_its_session_has(pytester: pytest.Pytester) -> None:
    ran = run(pytester, KILLERS, "--on=dask", "--workers=2", "-k", "right or wrong")
    ran.assert_outcomes(passed=12, failed=1, deselected=6)
    built = Path("built").read_text().split()
    assert len(built) == len(set(built)) <= 2


def test_a_test_that_kills_its_process_is_run_again_and_named(pytester: pytest.Pytester) -> None:
    """Where workers of Dask die beside it, that can be lost: Dask repeats a task by itself."""
    ran = run(pytester, KILLERS, "--on=dask", "--workers=1", "-k", "dies_once or skipped")
    assert ran.ret == 0
    ran.assert_outcomes(passed=1, skipped=1, deselected=len(OUTCOMES) - 2)
    ran.stdout.re_match_lines(
        ["test_killers.py::test_dies_once: SIGKILL at tcp://.*; it was run again"]
    )


@contextmanager
def scheduler() -> Iterator[tuple[str, int]]:
    """A scheduler with one worker, as a cluster has them: its address, and its process."""
    processes = []
    try:
        for command in (
            ["scheduler", "--port=0", "--host=127.0.0.1", "--scheduler-file=s.json",
             "--dashboard-address=:0"],
            ["worker", "--scheduler-file=s.json", "--nthreads=1", "--no-nanny",
             "--dashboard-address=:0"],
        ):  # fmt: skip
            with open(f"{command[0]}.log", "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "dask", *command], stdout=log, stderr=log
                    )
                )
            while not Path("s.json").exists():
                assert processes[0].poll() is None, Path("scheduler.log").read_text()
                time.sleep(0.1)
        yield json.loads(Path("s.json").read_text())["address"], processes[0].pid
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.nightly
def test_the_scheduler_is_gone(pytester: pytest.Pytester) -> None:
    with scheduler() as (address, pid):
        text = f"""
import os
import time
import pytest

@pytest.mark.parametrize("n", range(8))
def test_right(n):
    if n == 4:
        time.sleep(2)  # the reports of those before arrive
        os.kill({pid}, 9)
"""
        ran = run(pytester, text, f"--on={address}", "--outcomes=run.json")
    said = "\n".join([*ran.outlines, *ran.errlines])
    assert ran.ret == pytest.ExitCode.INTERRUPTED, said
    done = len(read("run.json").ids) - len(read("run.json").undone)
    assert f"the scheduler of --on={address} is gone: {8 - done} of 8 tests left" in said
    assert 0 < done < 8


@pytest.mark.parametrize(
    "options, why",
    thinned(
        [
            (("--on=dsk",), "--on=dsk: did you mean dask?"),
            (("--on=somewhere",), "--on=somewhere: dask, or tcp://HOST:8786 of a scheduler"),
            (("--on=tcp://127.0.0.1:9",), "--on=tcp://127.0.0.1:9: no scheduler answers: "),
            (("--on=dask", "--np=2"), "--np and --on: --np has ranks run every test"),
            (("--workers=2",), "--workers=N is for --on=dask"),
            (("--on=dask", "--workers=0"), "argument --workers: expected a whole number above 0"),
        ]
    ),
)
def test_what_means_nothing_is_one_line(pytester: pytest.Pytester, options: Any, why: str) -> None:
    ran = run(pytester, "def test_right():\n    pass\n", *options)
    said = [line for line in [*ran.outlines, *ran.errlines] if line.startswith("ERROR: ")]
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert len(said) == 1
    assert why in said[0]


@pytest.mark.nightly
def test_a_suite_is_judged_as_by_one_process(suite: Suite) -> None:
    cells = ("--operator=Relu,Softmax", "--examples=3", "--check=forward,gradient")
    alone = suite("Wrong", *cells)
    on = suite("Wrong", *cells, "--on=dask", "--workers=2")
    assert (on.rc, on.counts()) == (alone.rc, alone.counts())
    assert alone.rc == 1
