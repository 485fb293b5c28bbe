"""The end of a run, made of tallies: causes are told apart, and none is lost."""

import pytest

from d5test.outcome.tally import Tally, unaccused
from d5test.plugin.summary import CAUSES, LONGEST, fault_lines, lines


def faulty(
    operator: str, *causes: str, dtype: str = "float32", kind: str = "value", folder: str = ""
) -> Tally:
    """A tally with a fault of each of these causes."""
    tally = Tally("tiny", "forward", operator, dtype)
    text = f"{operator}(): the result is wrong on tiny 1.0 (cpu, eager)"
    tally.faults = [
        {
            "kind": kind, "cause": cause, "said": "", "case": "", "text": text,
            "reproducer": folder and f"{folder}/{operator}.py",
        }
        for cause in causes
    ]  # fmt: skip
    return tally


def test_causes_of_one_headline_are_told_apart() -> None:
    tallies = [
        faulty("Exp", "value: Exp inaccuracy", dtype="float64"),
        faulty("Exp", "value: Exp inaccuracy"),
        faulty("Exp", "value: Exp different function"),
        faulty("Exp", "value: Exp ", dtype="float16"),
        faulty("Erf", "value: Erf inaccuracy"),
    ]
    heads = [line.strip() for line in fault_lines(tallies) if " wrong on " in line]
    where = "the result is wrong on tiny 1.0 (cpu, eager)"
    assert heads == [
        f"Exp(): {where}: inaccuracy in float32, float64",
        f"Exp(): {where}: different function in float32",
        f"Exp(): {where}: float16",
        f"Erf(): {where}",
    ]


def test_what_shows_most_often_comes_first() -> None:
    raised = [faulty(f"Op{k}", "raised: E", kind="exception") for k in range(5)]
    tallies = [
        faulty("Relu", "value: Relu inaccuracy"),
        faulty("Erf", "value: Erf inaccuracy", "value: Erf inaccuracy"),
        *raised,
    ]
    counts = [int(line.split()[0]) for line in fault_lines(tallies) if "fault" in line]
    assert counts == [5, 2, 1]


def test_further_causes_have_a_line_each() -> None:
    shown = [faulty(f"Op{k}", *["value: x"] * 9) for k in range(CAUSES)]
    for k, tally in enumerate(shown):
        tally.faults = [{**fault, "cause": f"value: Op{k} zero"} for fault in tally.faults]
    rest = [
        faulty(f"Longer{k}", *(f"value: {m}" for m in range(1 + (k == 7))), folder="some/where")
        for k in range(12)
    ]
    for k, tally in enumerate(rest):
        tally.faults = [{**fault, "cause": f"{fault['cause']} {k}"} for fault in tally.faults]
    told = list(fault_lines([*shown, *rest]))
    at = told.index("\n  and 13 more causes of 13 faults:")
    *others, reproducers = told[at + 1 :]
    assert reproducers == "    reproducers: some/where"
    where = "the result is wrong on tiny 1.0 (cpu, eager)"
    assert sorted(others) == sorted(
        f"    Longer{k}(): {where}{more} (1 fault)"
        for k in range(12)
        for more in ([f": value: {m} 7 in float32" for m in (0, 1)] if k == 7 else [""])
    )


def test_long_reasons_keep_their_ends() -> None:
    tally = Tally("tiny", "forward", "Relu", "float32")
    tally.reasons = {f"{'Exception from core ' * 20}{end}": 1 for end in ("no Relu", "no Erf")}
    reasons = [line for line in lines([tally]) if "Exception" in line]
    assert [reason.rsplit("core ", 1)[1] for reason in reasons] == ["no Relu", "no Erf"]
    assert all(" ... " in reason and len(reason) <= LONGEST + 9 for reason in reasons)


@pytest.mark.parametrize(
    ("check", "kind", "said"),
    [
        ("forward", "value", True),
        ("layout", "crash", True),
        ("special", "special", False),
        ("integers", "value", False),
        ("invalid_arguments", "accepted", False),
    ],
)
def test_a_wrong_call_that_was_left_to_others_is_said_beside_faults_of_something_else(
    check: str, kind: str, said: bool
) -> None:
    """A softmax that swallows a NaN may also flush its results."""
    other = faulty("Softmax", "a cause", kind=kind)
    other.check = check
    left = Tally("tiny", "batch", "Softmax", "float32")
    left.left_to_others = {"wrong": "Softmax is wrong in a plain call", "check": "forward"}
    assert unaccused([other, left]) == ([] if said else [left])
    assert unaccused([left]) == [left]
