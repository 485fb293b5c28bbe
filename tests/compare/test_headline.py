"""What is said first: what is wrong before what is slow, and of each metric something."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.cli import main
from d5test.compare.output import short
from tests.compare.files import RIGHT, benchmark, name, sides, write

Compared = Callable[..., Any]
WRONG = {**RIGHT, "right": False, "ratio": 3.0}


def test_what_is_wrong_comes_first(tmp_path: Path, compared: Compared) -> None:
    answer = compared(*sides(
        tmp_path, slower={0: 2.0, 1: 3.0},
        new={3: {"judgement": WRONG}, 4: {"judgement": {**RIGHT, "ratio": 0.9}}},
    ))  # fmt: skip
    worse = [d for d in answer.found["decisions"] if d["verdict"] == "worse"]
    assert worse[0]["metric"]["name"] == "right"
    assert worse[0]["benchmark"] == name(3)
    assert " worse (wrong outputs of gemm-3-forward-torch; " in answer.found["reason"]


def test_each_metric_is_named_once_before_any_is_named_twice(
    tmp_path: Path, compared: Compared
) -> None:
    heavy = {b: {"memory": {"resident": 3 * 10**8, "device": None}} for b in range(4)}
    reason = compared(*sides(tmp_path, slower={0: 1.5, 1: 1.4}, new=heavy)).found["reason"]
    assert reason.startswith(
        "REGRESSED: 6 worse (resident memory of gemm-0-forward-torch +200.0%; "
        "time of gemm-0-forward-torch +"
    )
    assert "; and 3 more)" in reason


def test_wrong_outputs_are_no_lost_operator(tmp_path: Path, compared: Compared) -> None:
    why = {
        name(0): "failed: gemm forward on torch: the timed outputs are wrong: 9 times the bar",
        name(1): "skipped: no row for Relu",
    }
    gemm, relu, add = (
        benchmark(name(k), 1e-3, operator=op) for k, op in enumerate(("Gemm", "Relu", "Add"))
    )
    old = write(tmp_path / "old.json", [gemm, relu, add])
    new = write(tmp_path / "new.json", [add], untimed=why)
    answer = compared(old, new)
    assert (answer.status, answer.found["operators_lost"]) == (1, ["Relu"])
    assert answer.found["reason"].startswith(
        "REGRESSED: 1 with wrong outputs (gemm-0-forward-torch); operator lost: Relu; "
        "1 vanished (gemm-1-forward-torch): skipped: no row for Relu. Else"
    )


@pytest.mark.parametrize(
    ("full", "shown"),
    [
        (
            "operators/test_time.py::test_time[gemm-forward-./a.py:Mine]",
            "gemm-forward-./a.py:Mine",
        ),
        ("test_time.py::test_allreduce[tree-4-64]", "tree-4-64"),
        ("bench/test_sums.py::TestSums::test_sum[10]", "test_sum[10]"),
        ("bench/test_calls.py::test_call[at::conv2d]", "test_call[at::conv2d]"),
        ("bench/test_sort.py::test_sort", "test_sort"),
        ("plain", "plain"),
    ],
)
def test_a_name_says_what_is_measured(full: str, shown: str) -> None:
    assert short(full) == shown


def test_several_reasons_are_left_to_the_list(tmp_path: Path, compared: Compared) -> None:
    old = write(tmp_path / "old.json", [benchmark(name(k), 1e-3) for k in range(3)])
    why = {name(1): "skipped: one", name(2): "skipped: another"}
    new = write(tmp_path / "new.json", [benchmark(name(0), 1e-3)], untimed=why)
    reason = compared(old, new).found["reason"]
    assert "2 vanished (gemm-1-forward-torch; gemm-2-forward-torch). Else" in reason


@pytest.mark.parametrize(
    ("unsure", "status", "word"),
    [("pass", 0, "PASSED, BUT UNSURE"), ("fail", 1, "FAILED, SINCE UNSURE")],
)
def test_what_fails_is_not_said_to_pass(
    unsure: str, status: int, word: str, tmp_path: Path, compared: Compared
) -> None:
    """A benchmark that only one run has is unsure beside others that are not."""
    old, new = sides(tmp_path)
    alone = benchmark(name(9), 1e-3, shapes=[[2, 3], [3, 4]])
    for side in ("old", "new"):
        write(tmp_path / f"{side}9.json", [alone])
    answer = compared(old, new, f"--unsure={unsure}", "--format=text")
    assert answer.status == status
    assert answer.out.splitlines()[-1].startswith(f"{word}: nothing is known to be worse")


@pytest.mark.parametrize(
    ("unsure", "status", "word"),
    [
        ("pass", 0, "NOTHING COULD BE TOLD: "),
        ("fail", 1, "FAILED, SINCE NOTHING COULD BE TOLD: "),
    ],
)
def test_where_no_slowdown_could_be_seen_nothing_passed(
    unsure: str, status: int, word: str, tmp_path: Path, compared: Compared
) -> None:
    """Noise of 20% hides each slowdown of 5%, however many accuracies are the same."""
    answer = compared(*sides(tmp_path, noise=0.2), f"--unsure={unsure}", "--format=text")
    assert answer.status == status
    last = answer.out.splitlines()[-1]
    assert last.startswith(f"{word}none of 5 benchmarks could have shown a slowdown of 5.0%; ")
    assert "PASSED" not in answer.out


def test_where_nothing_is_compared_nothing_passed(tmp_path: Path, compared: Compared) -> None:
    old = write(tmp_path / "old.json", [benchmark(name(0), 1e-3)])
    new = write(tmp_path / "new.json", [benchmark(name(0), 1e-3, shapes=[[3, 5], [5, 8]])])
    answer = compared(old, new)
    assert answer.found["reason"] == (
        "NOTHING COULD BE TOLD: nothing was compared; 1 changed and were not compared."
    )


WRONG_GEMM = """
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

class Mine(Numpy):
    rows = {"Gemm": Row(lambda op, a, b: a @ b + 1)}
"""


def test_the_suite_says_of_wrong_outputs_what_is_looked_for(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(mine=WRONG_GEMM)
    path = Path(__file__).parents[2] / "suites" / "operators" / "test_time.py"
    pytester.runpytest_subprocess(
        str(path), "--backend=./mine.py:Mine,numpy", "--operator=Gemm", "-k", "forward and m64",
        "--benchmark-json=new.json",
    ).assert_outcomes(passed=1, failed=1)  # fmt: skip
    text = Path("new.json").read_text()
    assert "the timed outputs are wrong" in text


def test_no_name_is_broken_where_no_terminal_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    short = "conv-n1-c1-h48-w480-k16-3x3-s1x1-backward-./a/b.py:Mine"
    long = f"operators/test_time.py::test_time[{short}]"
    for side, right in (("old", RIGHT), ("new", WRONG)):
        write(tmp_path / f"{side}.json", [benchmark(long, 1e-3, judgement=right)])
    assert main(["compare", f"{tmp_path}/old.json", f"{tmp_path}/new.json"]) == 1
    rows = [line for line in capfd.readouterr().out.splitlines() if "worse" in line.split()[:1]]
    assert any(f"right of {short}" in row for row in rows)


def test_many_numbers_of_the_environment_are_a_span(tmp_path: Path, compared: Compared) -> None:
    for side, cores in (("old", (9, 10, 1, 8, 11)), ("new", (9, 10))):
        for k, count in enumerate(cores):
            found = benchmark(name(0), 1e-3 + k / 1e6)
            about = {"cpu": {"count": count}, "release": f"6.{k}.1", "system": f"{k} to {count}"}
            write(tmp_path / f"{side}{k}.json", [found], **about)
    found = compared(f"{tmp_path}/old*", f"{tmp_path}/new*").found["environment"]
    assert found["cores"] == ["1 to 11", "9 | 10"]
    assert found["system"] == ["0 to 11", "0 to 9 | 1 to 10"]
    assert found["kernel"] == ["6.0.1 | 6.1.1 | 6.2.1 | 6.3.1 | 6.4.1", "6.0.1 | 6.1.1"]
