"""pytest under mpirun, from outside: nothing hangs, all is said once, the right rank is named."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import at_night

SUITES = Path(__file__).with_name("suites")
Run = Callable[..., Any]

EXPECTED = {
    "test_right": "passed",
    "test_one_raises": "failure",
    "test_right_after_one_raised": "passed",
    "test_all_fail_alike": "failure",
    "test_one_leaves_python": "failure",
    "test_one_sleeps": "failure",
    "test_skipped": "skipped",
    "test_one_skips": "passed",
    "test_too_few": "skipped",
    "test_one_fails_as_expected": "skipped",
    "test_drawn": "passed",
    "test_drawn_fails_on_one": "failure",
    "test_fixture_breaks_on_one": "error",
    "test_right_at_the_end": "passed",
}
SAID = (
    "rank 1 of 3 failed:",
    "ValueError: planted at 1",
    "ranks 0, 2 waited in Allreduce when rank 1 left",
    "printed by 1",
    "ranks 0-2 of 3 failed:",
    "SystemExit: 3",
    "ranks 0-1 waited in Recv when rank 2 left",
    "not done after 3 s",
    ">           time.sleep(600)",
    "Failing test case: test_drawn_fails_on_one",
    "OSError: planted in a fixture",
)


@pytest.mark.parametrize("supervised", [at_night(False), True], ids=["mpirun", "np"])
def test_outcomes_are_those_of_all_ranks_and_said_once(run: Run, supervised: bool) -> None:
    ran = run("outcomes", *(["--np=3"] if supervised else []), ranks=0 if supervised else 3)
    assert ran.outcomes == EXPECTED, ran.printed
    assert [words for words in SAID if words not in ran.printed] == []
    shown = [words for words in ran.printed.splitlines() if words.startswith("E  ")]
    assert sum("ValueError: planted at 1" in words for words in shown) == 1
    assert ran.printed.count("test session starts") == 1
    assert ran.status == 1


@pytest.mark.parametrize("ranks", [1, 2, at_night(5)])
def test_a_guarded_communicator_is_mpis_own(run: Run, tmp_path: Path, ranks: int) -> None:
    times = tmp_path / "times.json"
    ran = run("calls", f"--benchmark-json={times}", ranks=ranks)
    assert set(ran.outcomes.values()) == {"passed"}, ran.printed
    assert len(ran.outcomes) == 16
    assert ran.status == 0
    written = json.loads(times.read_text())
    (timed,) = written["benchmarks"]
    assert timed["stats"]["rounds"] == 3
    assert timed["stats"]["min"] >= ranks / 100  # the slowest rank sleeps so long
    assert written["machine_info"]["mpi"]["ranks"] == ranks


@pytest.mark.parametrize(
    ("death", "line"),
    [
        ("killed", "os.kill(os.getpid(), signal.SIGKILL)"),
        at_night(("left", "os._exit(0)")),
        ("asleep", "not done after 3 s"),
    ],
)
def test_a_rank_that_ends_without_a_word_is_named(run: Run, death: str, line: str) -> None:
    ran = run("deaths", DEATH=death)
    assert ran.status != 0
    assert "deaths.py::test_death (call): " in ran.printed
    told = [words for words in ran.printed.splitlines() if words.startswith("  rank 1 stood at ")]
    assert len(told) == 1, ran.printed
    assert "deaths.py:" in told[0]
    assert line in told[0] or "DEATHS[os.environ" in told[0]
    assert ran.printed.count("communicator.raw.Allreduce(np.ones(3)") == 2, ran.printed  # 0 and 2


def test_a_supervisor_loses_one_test_with_a_rank(run: Run) -> None:
    ran = run("deaths", "--np=3", ranks=0, DEATH="killed")
    assert ran.outcomes == {
        "test_before": "passed",
        "test_death": "failure",
        "test_after": "passed",
    }, ran.printed
    assert "rank 1 left by os.kill" in ran.printed
    assert "  rank 2 stood at " in ran.printed
    assert ran.status == 1


@pytest.mark.parametrize(
    ("apart", "words", "status"),
    [
        at_night(("tests", "ERROR: the ranks collected different tests: rank 0 alone has", 4)),
        ("import", "ImportError: planted at the import", 2),
        ("exit", "rank 1 has left the run", 6),
    ],
)
def test_ranks_that_part_end_together(run: Run, apart: str, words: str, status: int) -> None:
    ran = run("apart", ranks=2, APART=apart)
    assert words in ran.printed
    assert ran.status == status, ran.printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "2"], "ERROR: -n distributes tests"),
        (["--np=2"], "ERROR: --np starts mpirun itself"),
        (["--operator=Nope"], "ERROR: unknown operator 'Nope'"),
    ],
    ids=["xdist", "np", "operator"],
)
def test_a_mistake_is_said_once(run: Run, arguments: list[str], words: str) -> None:
    ran = run("calls", *arguments, ranks=2)
    assert ran.printed.count(words) == 1, ran.printed
    assert ran.printed.count("ERROR") == 1
    assert ran.status == 4


@pytest.mark.nightly
def test_a_rank_that_does_nothing_is_named_long_before_its_deadline(run: Run) -> None:
    begun = time.monotonic()
    ran = run("still")
    assert {name for name, came in ran.outcomes.items() if came == "passed"} == {
        "test_one_computes",
        "test_one_computes_and_others_wait_in_mpi",
        "test_one_waits_for_a_process",
        "test_after",
    }, ran.printed
    assert ran.outcomes["test_one_sleeps"] == "failure"
    assert ran.outcomes["test_one_sleeps_in_a_fixture"] == "error"
    assert ran.printed.count("Overdue: nothing was done for 3 s") == 2
    assert "ranks 0, 2 waited in Barrier when rank 1 left" in ran.printed
    assert ">               time.sleep(1)" in ran.printed
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("still", "tests", "words"),
    [
        (
            "raises",
            "raises",
            "test_one_raises_and_others_wait_in_mpi (call): rank 1 left it, rank ",
        ),
        at_night(("stopped", "stopped", "(teardown): stopped for 12 s, so rank 1 was killed")),
        at_night(
            (
                "between",
                "after",
                "still.py::test_after (start): stopped for 12 s, so rank 1 was killed",
            )
        ),
    ],
)
def test_others_that_wait_for_it_are_not_to_blame(
    run: Run, still: str, tests: str, words: str
) -> None:
    begun = time.monotonic()
    path = f"{SUITES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ran = run("still", "-p", "still", "-k", tests, STILL=still, PYTHONPATH=path)
    assert words in ran.printed
    assert sum(line.startswith("  rank 1 stood at ") for line in ran.printed.splitlines()) == 1
    assert "waited for rank" not in ran.printed
    assert time.monotonic() - begun < 60
