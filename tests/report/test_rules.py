"""Each rule that the records can tell of: what breaks it, and what does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.compare.reading import read
from d5test.distributed.scaling import Scaling
from d5test.record import KEY
from d5test.report import Report
from d5test.report.content import Stored
from d5test.report.rules import MASSES, PRACTICE, STATUS, Evidence, Finding, Rules
from d5test.report.sections import fitness
from tests.compare.files import BACKEND, benchmark, name, plain, sides, write


def step(ranks: int, mode: str = "weak", base: bool = True, **changed: Any) -> dict[str, Any]:
    """A step of a distributed optimizer on so many ranks."""
    usual = {
        "optimizer": "ring", "mode": mode, "ranks": ranks,
        "samples": 16 * ranks if mode == "weak" else 64, "network": "mlp", "parameters": 7,
        "seconds": [1e-3 * (1 + 0.01 * k) for k in range(9)], "compute": [1e-3] * ranks,
        "messages": [3] * ranks, "bytes": [8] * ranks, "backend": {"name": "torch"},
        "communicator": "MPI", "base": {"ranks": 1, "samples_per_second": 1.6e4} if base else None,
    }  # fmt: skip
    scaling = Scaling(**{**usual, **changed}).to_json()
    return plain(f"step[ring-{mode}-{ranks}]", 1e-3, scaling=scaling)


def call(ranks: int, **changed: Any) -> dict[str, Any]:
    """An allreduce."""
    sent = {"ranks": ranks, "contribution_bytes": 1024, "messages": 4, "imbalance": 1.0}
    return plain(f"allreduce[{ranks}]", 1e-4, communication={**sent, **changed})


@pytest.fixture
def finding(tmp_path: Path) -> Callable[..., Finding]:
    """What is said of a rule of a list, of entries of two versions; of one if `old` is None."""

    def find(rules: Rules, number: int, new: Any, old: Any = (), **machine: Any) -> Finding:
        written = [read(str(write(tmp_path / "new.json", new)), 256)]
        if old is not None:
            found = write(tmp_path / "old.json", old or new, **machine)
            written.insert(0, read(str(found), 256))
        evidence = Evidence(Report(written[0] if old is not None else [], written[-1]))
        return next(f for rule, f in rules.findings(evidence) if rule.number == number)

    return find


GOOD = [benchmark(name(b), 1e-3 * (b + 1)) for b in range(3)]
FEW = benchmark("few", 1e-3, seconds=[1e-3] * 5)
TOLD: list[tuple[Rules, int, list[Any], str, str]] = [
    (MASSES, 1, GOOD, "none", "more than one rank"),
    (MASSES, 1, [step(1), step(2), call(3)], "unknown", "4 times on more than one rank"),
    (MASSES, 2, GOOD, "unknown", "no training"),
    (MASSES, 5, GOOD, "none", "nothing of the kind"),
    (MASSES, 5, [step(1), call(2)], "kept", "2 times are of whole steps"),
    (MASSES, 5, [call(2), call(3)], "breached", "4 of 4 distributed times"),
    (MASSES, 6, GOOD, "breached", "6 of 6 times leave out"),
    (MASSES, 6, [plain("a", 1)], "none", "nothing"),
    (MASSES, 7, GOOD, "kept", "0 of 6 rates"),
    (MASSES, 8, GOOD, "kept", "0 of 6"),
    (MASSES, 8, [*GOOD, plain("a", 1)], "breached", "2 of 8 times have no judgement"),
    (MASSES, 9, GOOD, "kept", "0 of 6"),
    (MASSES, 9, [*GOOD, benchmark("a", 1, source="")], "breached", "2 of 8 problems"),
    (MASSES, 11, [step(1), step(2), step(1, "strong")], "kept", "0 of 4 series"),
    (MASSES, 11, [step(1), step(2, samples=99)], "breached", "2 of 2 series"),
    (MASSES, 12, GOOD, "kept", "0 of 3 benchmarks"),
    (PRACTICE, 1, GOOD, "kept", "0 of 15 changes"),
    (PRACTICE, 1, [step(1), step(2), step(3, base=False)], "breached", "2 of 4 speedups"),
    (PRACTICE, 2, GOOD, "kept", "0 benchmarks are left out"),
    (PRACTICE, 3, GOOD, "kept", "0 means"),
    (PRACTICE, 5, GOOD, "kept", "0 of 6 medians"),
    (PRACTICE, 5, [*GOOD, FEW], "breached", "2 of 8 medians"),
    (PRACTICE, 6, GOOD, "kept", "0 limits"),
    (PRACTICE, 7, GOOD, "breached", "6 of 6 comparisons"),
    (PRACTICE, 8, GOOD, "kept", "0 of 6 times"),
    (PRACTICE, 10, [step(2), call(2)], "kept", "0 of 4 times"),
    (PRACTICE, 10, [call(2), call(3, imbalance=None)], "breached", "2 of 4 times"),
    (PRACTICE, 11, GOOD, "breached", "6 of 6 rates"),
    (PRACTICE, 12, [step(1), step(2), step(2, "strong")], "kept", "4 lines"),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "number", "entries", "status", "words"), TOLD)
def test_a_rule(
    rules: Rules, number: int, entries: Any, status: str, words: str, finding: Any
) -> None:
    found = finding(rules, number, entries)
    assert (found.status, words in found.text) == (status, True), found.text


def test_operations_counted_in_another_way(finding: Any) -> None:
    odd = benchmark("odd", 1e-3)
    odd["extra_info"]["d5test"]["flop_per_second"] *= 2
    assert finding(MASSES, 7, [*GOOD, odd], GOOD).text.startswith("1 of 7 rates")


def test_other_hardware(finding: Any) -> None:
    found = finding(MASSES, 4, GOOD, GOOD, cpu={"count": 64})
    assert found == Finding("breached", "1 of 2 facts of the hardware differ (cores)")
    assert finding(MASSES, 4, GOOD).status == "kept"
    assert finding(MASSES, 4, GOOD, None).status == "none"
    assert finding(MASSES, 4, [plain("a", 1)]).status == "unknown"


def test_what_the_rival_is_not_compared_in(finding: Any) -> None:
    found = finding(MASSES, 12, GOOD[:1], GOOD)
    assert found == Finding("breached", "2 of 3 benchmarks of the old version are not compared")
    silent = finding(PRACTICE, 2, GOOD[:1], GOOD)
    assert silent == Finding("breached", "2 of 2 benchmarks are left out without a reason")


def test_rounds_that_are_not_in_the_file(finding: Any) -> None:
    bare = plain("bare", 1e-3)
    del bare["stats"]["data"]
    assert finding(PRACTICE, 8, [*GOOD, bare]).text.startswith("2 of 8 times have no rounds")


def test_a_case_of_the_corpus_is_no_time(finding: Any, tmp_path: Path) -> None:
    frozen = {"version": 1, "hash": "c0ffee", "data": "da7a"}
    case = plain("case", 5.0, d5test={**benchmark("", 1)["extra_info"][KEY], "corpus": frozen})
    assert finding(PRACTICE, 5, [*GOOD, case]).text == finding(PRACTICE, 5, GOOD).text
    assert finding(MASSES, 8, [*GOOD, case]).text == finding(MASSES, 8, GOOD).text
    run = read(str(write(tmp_path / "both.json", [*GOOD, case])), 256)
    (told,) = [v for k, v in fitness(Report([], run)).facts if k == "rounds a benchmark"]
    assert told == "7"


def test_facts_of_the_set_up(finding: Any) -> None:
    found = finding(PRACTICE, 9, GOOD)
    assert found.status == "breached"
    assert "processor" in found.text
    assert "load" not in found.text
    assert str(BACKEND["name"]) not in found.text


def test_limits_take_a_distribution(tmp_path: Path) -> None:
    old, new = (read(side, 256) for side in sides(tmp_path))
    evidence = Evidence(Report(old, new))
    found = {rule.number: f for rule, f in PRACTICE.findings(evidence)}
    assert found[6].status == "breached"
    assert found[6].text.startswith("10 limits take Student's t")
    assert found[7] == Finding("kept", "0 of 10 comparisons of noisy metrics know no noise floor")


class Quotients(Stored):
    summarises = "changes are means of quotients"


def test_a_rule_that_sums_up_ratios_says_so(tmp_path: Path) -> None:
    old, new = (read(side, 256) for side in sides(tmp_path))
    told = {
        rule: next(
            found
            for row, found in PRACTICE.findings(Evidence(Report(old, new, rule=rule())))
            if row.number == 4
        )
        for rule in (Stored, Quotients)
    }
    assert told[Stored] == Finding("kept", "0 ratios are averaged")
    assert told[Quotients] == Finding("breached", "10 changes are means of quotients")


class Signs(Stored):
    """A rule that assumes nothing."""

    assumes = ""


def test_a_rule_may_assume_no_distribution(tmp_path: Path) -> None:
    old, new = (read(side, 256) for side in sides(tmp_path))
    found = PRACTICE.findings(Evidence(Report(old, new, rule=Signs())))
    assert (6, Finding("kept", "10 limits assume no distribution")) in [
        (rule.number, finding) for rule, finding in found
    ]


@pytest.mark.parametrize("rules", [MASSES, PRACTICE])
def test_each_list_has_twelve_rules_breaches_first(rules: Rules, tmp_path: Path) -> None:
    assert [rule.number for rule in rules.rules] == list(range(1, 13))
    (run,) = read(str(write(tmp_path / "run.json", GOOD)), 256)
    found = [STATUS.index(f.status) for _, f in rules.findings(Evidence(Report([run], [run])))]
    assert found == sorted(found)
