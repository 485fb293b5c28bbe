"""One report out of those of all ranks."""

from dataclasses import replace
from typing import Any

import pytest

from d5test.plugin.ranks.verdict import Remark, apply

PASSED = Remark("passed")
SKIPPED = Remark("skipped", skip=("a.py", 3, "Skipped: planted"))
XFAILED = Remark("xfailed", text="assert 0", wasxfail="planted")
UNEXPECTED = Remark("unexpected", text="[XPASS(strict)] planted")
FREED = Remark("freed", path="a.py", line=7, failure="waited in Bcast when rank 1 left")


def failed(line: int = 9, failure: str = "ValueError", **more: Any) -> Remark:
    text = f"traceback of {failure} at {line}"
    return Remark("failed", text, "a.py", line, f"{failure}: planted", failure, **more)


def report_of(remark: Remark) -> Any:
    outcome: Any = {"xfailed": "skipped", "unexpected": "failed", "freed": "failed"}.get(
        remark.kind, remark.kind
    )
    found = pytest.TestReport(
        "a.py::t", ("a.py", 1, "t"), {}, outcome, remark.skip or remark.text or None, "call"
    )
    if remark.wasxfail is not None:
        found.wasxfail = remark.wasxfail
    return found


def agreed(*remarks: Remark) -> Any:
    """The report of each rank; all say the same in what counts."""
    reports = [report_of(remark) for remark in remarks]
    for rank, report in enumerate(reports):
        apply(remarks, report, rank)
    first = reports[0]
    for report in reports:
        assert report.outcome == first.outcome
        assert getattr(report, "wasxfail", None) == getattr(first, "wasxfail", None)
        if first.failed and "unexpected" not in {remark.kind for remark in remarks}:
            assert report.longreprtext == first.longreprtext
    return first


@pytest.mark.parametrize(
    ("remarks", "outcome", "wasxfail"),
    [
        ((PASSED, SKIPPED, PASSED), "passed", None),
        ((SKIPPED, SKIPPED), "skipped", None),
        ((PASSED, failed(), SKIPPED), "failed", None),
        ((PASSED, XFAILED, FREED), "skipped", "planted"),
        ((UNEXPECTED, XFAILED), "skipped", "planted"),
        ((UNEXPECTED, UNEXPECTED), "failed", None),
        ((XFAILED, failed()), "failed", None),
    ],
)
def test_the_outcome(remarks: tuple[Remark, ...], outcome: str, wasxfail: str | None) -> None:
    report = agreed(*remarks)
    assert report.outcome == outcome
    assert getattr(report, "wasxfail", None) == wasxfail


def test_a_skip_says_why_as_pytest_wants_it() -> None:
    assert agreed(SKIPPED, SKIPPED).longrepr == ("a.py", 3, "Skipped: planted")


def test_each_distinct_failure_is_shown_once_with_its_ranks() -> None:
    other, twice = failed(line=11), failed()
    text = agreed(FREED, twice, other, twice, twice, twice, PASSED, FREED).longreprtext
    assert text.count("traceback of ValueError at 9") == 1
    assert text.count("traceback of ValueError at 11") == 1
    assert "ranks 1, 3-5 of 8 failed:" in text
    assert "rank 2 of 8 failed:" in text
    assert "a.py:7: ranks 0, 7 waited in Bcast when rank 1 left" in text


def test_what_a_check_says_in_words_is_told_apart_by_its_words() -> None:
    text = agreed(failed(failure="ring is wrong"), failed(failure="star is wrong")).longreprtext
    assert "rank 0 of 2 failed:" in text
    assert "rank 1 of 2 failed:" in text


def test_the_summary_line_and_the_output_are_those_of_a_rank_that_failed() -> None:
    printed = failed(sections=(("Captured stdout call", "hello of 1"),))
    report = agreed(PASSED, printed)
    assert report.longrepr.reprcrash.message == "rank 1: ValueError: planted"
    assert (report.longrepr.reprcrash.path, report.longrepr.reprcrash.lineno) == ("a.py", 9)
    assert report.sections == [("Captured stdout call (rank 1)", "hello of 1")]


def test_a_remark_travels() -> None:
    remark = replace(failed(), left=True)
    assert Remark.read(remark.message_to_others()) == remark
    assert Remark.read(None) == PASSED
