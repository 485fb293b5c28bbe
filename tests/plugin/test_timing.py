"""A timing run end to end: what it records, and that a wrong result's time is no time."""

import json
from pathlib import Path

import pytest

from d5test.compare import read
from d5test.visits import Plan

SUITE = Path(__file__).parents[2] / "suites"
WRONG = """
from d5test.backends.numpy import Numpy

class Slightly(Numpy):
    def get(self, tensor):
        array, dtype = super().get(tensor)
        return array * array.dtype.type(1.001), dtype
"""
PID = """
import os
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

def noted(op, a, b):
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return a @ b

class Pid(Numpy):
    rows = {"Gemm": Row(noted, gradient="none here")}
"""
BROKEN = """
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

class Broken(Numpy):
    rows = {"Gemm": Row(lambda op, *inputs: 1 / 0)}
"""


def timed(pytester: pytest.Pytester, backend: str) -> tuple[pytest.RunResult, dict]:
    result = pytester.runpytest_subprocess(
        f"{SUITE}/operators/test_time.py",
        f"--backend={backend}",
        "--operator=Gemm",
        "--benchmark-json=times.json",
    )
    return result, json.loads((pytester.path / "times.json").read_text())


def test_a_record_says_what_was_timed_and_that_it_is_right(pytester: pytest.Pytester) -> None:
    result, written = timed(pytester, "numpy")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*medians, with 95% confidence intervals*"])
    for entry in written["benchmarks"]:
        record = entry["extra_info"]["d5test"]
        assert record["valid"]
        assert 0 < record["judgement"]["ratio"] <= 1
        assert len(record["seconds"]) == entry["stats"]["rounds"] == 20
        low, high = record["median_interval_95"]
        assert low <= record["median"] <= high
        assert record["median"] == pytest.approx(entry["stats"]["median"])
        work = {"forward": 2, "backward": 4}[record["direction"]] * record["multiplications"]
        assert record["flop_per_second"] == pytest.approx(work / record["median"])


@pytest.mark.nightly
def test_each_control_is_a_run_in_processes_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(pid=PID)
    result = pytester.runpytest_subprocess(
        f"{SUITE}/operators/test_time.py", "--backend=./pid.py:Pid", "--operator=Gemm",
        "--control=2", "--benchmark-json=times.json", "-k", "forward",
    )  # fmt: skip
    result.assert_outcomes(passed=2, deselected=2)
    (run,) = read(str(pytester.path / "times.json"))
    for entry in run.entries.values():
        assert len(entry.samples["time"].values) == 3
        assert entry.paced is not None
        assert "BLAKE2b" in entry.paced.work
        assert len(entry.paced.times) == 3
    assert len(set((pytester.path / "pids").read_text().split())) == 3 * Plan.processes


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--control=-1"], "expected a whole number from 0 on, got '-1'"),
        (["--control=1", "--in-process"], "leave out --in-process"),
    ],
)
def test_a_control_arm_that_cannot_be(
    pytester: pytest.Pytester, options: list[str], why: str
) -> None:
    result = pytester.runpytest_subprocess(f"{SUITE}/operators", "--backend=numpy", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{why}"])


def test_a_wrong_result_has_no_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(slightly=WRONG)
    result, written = timed(pytester, "./slightly.py:Slightly")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*the timed outputs are wrong*"])
    assert written["benchmarks"] == []


def test_a_broken_backend_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(broken=BROKEN)
    result = pytester.runpytest_subprocess(
        f"{SUITE}/operators/test_time.py", "--backend=./broken.py:Broken", "--operator=Gemm"
    )
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["gemm-* forward on *: ZeroDivisionError in call*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("option", ["--benchmark-disable", "-n1"])
def test_where_pytest_benchmark_is_off_what_would_be_timed_is_judged(
    pytester: pytest.Pytester, option: str
) -> None:
    pytester.makepyfile(slightly=WRONG)
    result = pytester.runpytest_subprocess(
        f"{SUITE}/operators/test_time.py", "--backend=numpy,./slightly.py:Slightly",
        "--operator=Gemm", option,
    )  # fmt: skip
    result.assert_outcomes(passed=4, failed=4)
    result.stdout.fnmatch_lines(["*the timed outputs are wrong*"])
    result.stdout.no_fnmatch_line("*GFLOP/s*")


def test_a_run_that_judges_times_nothing(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        f"{SUITE}/operators", "--backend=numpy", "--operator=Gemm", "--collect-only", "-q"
    )
    result.stdout.fnmatch_lines(["*test_forward*"])
    result.stdout.no_fnmatch_line("*test_time*")


def test_an_operator_that_no_problem_has_is_skipped(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        f"{SUITE}/operators/test_time.py", "--backend=numpy", "--operator=Relu", "--control=1"
    )
    result.assert_outcomes(skipped=2)
