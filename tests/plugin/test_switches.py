"""pytest's own switches, on the suites."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.nightly import at_night, thinned

Suite = Callable[..., Any]
RELU = ("--operator=Relu", "--examples=3", "--dtype=float32,float64")
FORWARD = (*RELU, "--check=forward")
TIMES = "operators/test_time.py"
ONE = ("--backend=numpy", "--operator=Gemm", "-k", "forward and k1216")


def test_a_benchmark_file_without_times_is_said(suite: Suite, pytester: pytest.Pytester) -> None:
    for option in ("--benchmark-json=x.json", "--benchmark-autosave"):
        ran = suite("Tiny", *FORWARD, option)
        assert ran.rc == 0
        lines = [line for line in ran.text.splitlines() if "nothing was timed" in line]
        assert len(lines) == 2  # before a long run, and after it
        assert all("name test_time.py (times)" in line for line in lines)
        assert ran.text.index("nothing was timed") < ran.text.index("test_forward.py")
        assert not (pytester.path / "x.json").exists()
        assert not list(pytester.path.glob(".benchmarks/**/*.json"))


def test_times_are_saved(suite: Suite, pytester: pytest.Pytester) -> None:
    ran = suite(
        "", *ONE, "--benchmark-json=x.json", "--benchmark-autosave", "--benchmark-only",
        "--benchmark-min-rounds=23", where=TIMES,
    )  # fmt: skip
    assert ran.rc == 0, ran.text
    assert "nothing was timed" not in ran.text
    (entry,) = json.loads((pytester.path / "x.json").read_text())["benchmarks"]
    assert entry["stats"]["rounds"] == 23
    assert len(list((pytester.path / ".benchmarks").rglob("*.json"))) == 1
    skipped = suite("", *ONE, "--benchmark-skip", where=TIMES)
    assert skipped.rc == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "1 passed" not in skipped.text


def test_only_benchmarks_are_none_of_what_is_judged(suite: Suite) -> None:
    ran = suite("Tiny", *FORWARD, "--benchmark-only")
    assert ran.rc == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "3 deselected" in ran.text
    assert "NOTHING WAS JUDGED: no test was left (exit status 5): --operator, --check" in ran.text


def test_a_check_of_another_mode_is_said_to_be_one(suite: Suite) -> None:
    ran = suite("Tiny", "--check=compiled")
    assert ran.rc == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "--check=compiled is asked of compiled and xla backends alone: NAME-comp" in ran.text


REFUSED = {
    "--hypothesis-seed=3": "say --seed=N",
    "--hypothesis-show-statistics": "cases are counted at the end of the run",
    "--benchmark-min-rounds=7 --control=2": "--control times rounds of its own",
    "--exampels=3": "unknown option '--exampels=3': did you mean --examples",
    "--no-such-thing": "unknown option '--no-such-thing': --help lists all",
    "--examples=none": "argument --examples: expected a whole number above 0, got 'none'",
    "--problems=few": "argument --problems: invalid choice: 'few'",
    "--device": "argument --device: expected one argument",
    "--backend=~nosuch/x.py:A": "no backend '~nosuch/x.py:A': there is no file",
    f"--backend=./{'x' * 300}.py:A": "there is no file",
    f"--backend=./tiny.py:Tiny@{'x' * 300}": "no interpreter",
    f"--network={'x' * 300}.onnx": "there is no such file",
    f"--recipe=./{'x' * 300}.py": "there is no file",
    f"--operator=./{'x' * 300}.py:A": "there is no file",
    "--optimizer=Adm": "unknown optimizer 'Adm': did you mean Adam",
    "--network=./tiny.py:none": "network './tiny.py:none' cannot be made: TypeError",
    "--comm=./tiny.py:Missing": "communicator './tiny.py:Missing' cannot be loaded",
}


@pytest.mark.parametrize("options", thinned(REFUSED))
def test_what_means_nothing_is_one_line(suite: Suite, options: str) -> None:
    ran = suite("" if "--backend" in options else "Tiny", *FORWARD, *options.split())
    assert ran.rc == pytest.ExitCode.USAGE_ERROR, ran.text
    errors = [line for line in ran.text.splitlines() if line.startswith("ERROR: ")]
    assert len(errors) == 1
    assert REFUSED[options] in errors[0]
    for noise in ("rootdir:  ", "inifile", "usage:", "INTERNALERROR", "Traceback"):
        assert noise not in ran.text


@pytest.mark.parametrize("where", ["operators", at_night("training")])
def test_the_first_failure_ends_it_and_is_tried_again(
    suite: Suite, pytester: pytest.Pytester, where: str
) -> None:
    pytester.path.joinpath("halved.py").write_text(HALVED)
    cache = ("-p", "cacheprovider", "-o", f"cache_dir={pytester.path / 'cache'}")
    backend = "--backend=./halved.py:Halved"
    tests = {
        "operators": (*FORWARD, "--operator=Neg"),
        "training": ("--optimizer=Adam", "-k", "step", "--examples=3"),
    }[where]
    first = suite("", backend, *tests, *cache, "-x", "--durations=1", where=where)
    assert first.rc == 1
    assert "1 failed" in first.text
    assert "stopping after 1 failures" in first.text
    assert "slowest 1 durations" in first.text
    again = suite("", backend, *tests, *cache, "--lf", where=where)
    assert again.rc == 1
    assert "1 failed" in again.text
    assert "run-last-failure: rerun previous 1 failure" in again.text


HALVED = """
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, NumpyUpdater


class HalvedUpdater(NumpyUpdater):
    def step(self, gradients):
        super().step({name: g / 2 for name, g in gradients.items()})


def step(op, w, g, *slots):
    from d5test.backends.updater import one_step
    return one_step(HalvedUpdater, op, w, g, *slots)


class Halved(Numpy):
    rows = {
        "Relu": Numpy.rows["Relu"],
        "Neg": Row(lambda op, x: -x / 2, gradient="none"),
        "Adam": Row(step),
    }
    updaters = {"native": HalvedUpdater}
"""


def test_tests_are_chosen_by_words(suite: Suite) -> None:
    ran = suite("Tiny", *FORWARD, "-k", "float32")
    assert ran.rc == 0
    assert "1 passed, 1 deselected" in ran.text
