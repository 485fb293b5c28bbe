"""A run of the corpus: where it is collected, what it says of faults, known ones included."""

import json
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / "suites" / "operators"
WRONG = """
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

class Wrong(Numpy):
    framework = "wrong"
    rows = {
        "Relu": Row(lambda op, x: x * (x > 0) * 2, gradient="not here"),
        "Neg": Row(lambda op, x: 1 / 0, gradient="not here"),
    }
"""
KNOWN = """
[[known]]
checks = ["forward"]
operators = ["{operator}"]
dtypes = ["float32"]
cases = ["Case({operator}(), (Tensor((4,)),))"]
reason = "it is new"
owner = "somebody"
expires = 2999-01-31
where = {{}}
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    pytester.makepyfile(wrong=WRONG)
    return pytester.runpytest_subprocess(
        SUITE / "test_corpus.py", "--backend=./wrong.py:Wrong", "--dtype=float32", *options
    )


def test_it_is_collected_where_it_is_named(pytester: pytest.Pytester) -> None:
    options = ("--backend=numpy", "--operator=Relu", "--collect-only", "-q")
    result = pytester.runpytest_subprocess(SUITE, *options)
    result.stdout.fnmatch_lines(["*test_forward*"])
    result.stdout.no_fnmatch_line("*test_corpus*")
    command = ["run", "operators/test_corpus.py", *options, "--dtype=float16"]
    code = f"from d5test.cli import main; raise SystemExit(main({command}))"
    result = pytester.run(sys.executable, "-c", code)
    result.stdout.fnmatch_lines(
        [f"*::test_corpus?Relu-float16-{k}-forward-numpy?" for k in range(3)]
    )
    result.stdout.fnmatch_lines(["6 tests collected*"])


def test_a_fault_has_its_case_and_its_reproducer(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--operator=Relu", "-n1")  # where pytest-benchmark is off, too
    result.assert_outcomes(failed=4, skipped=4)
    result.stdout.fnmatch_lines(
        [
            "Relu(): the result is wrong on wrong.py:Wrong, wrong *",
            "  frozen  Relu-float32-0 forward",
            "*reproducer: .d5test*Relu-forward-float32-*.py",
            "*Wrong float32: 4 judged, 4 wrong; at most inf of the bar: *",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_known_failures_are_recorded_if_they_have_a_result(pytester: pytest.Pytester) -> None:
    rows = "".join(KNOWN.format(operator=name) for name in ("Relu", "Neg"))
    pytester.path.joinpath("known.toml").write_text(rows)
    result = run(
        pytester, "--operator=Relu,Neg", "--known=known.toml", "--benchmark-json=found.json"
    )
    result.assert_outcomes(xfailed=8, skipped=8)
    found = json.loads(pytester.path.joinpath("found.json").read_text())["benchmarks"]
    records = [entry["extra_info"]["d5test"] for entry in found]
    assert [record["problem"] for record in records] == [f"Relu-float32-{k}" for k in range(4)]
    assert [record["judgement"]["right"] for record in records] == [False] * 4
    assert [record["judgement"]["ratio"] for record in records] == [None] * 4
