"""The corpus in a gate, on numbers: what is worse by name, what is left out, what is written."""

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from d5test.backends.base import Unsupported
from d5test.gate import Gate, Outcome
from d5test.gate.corpus import Examination, examine
from d5test.gate.gate import Findings
from d5test.gate.outcome import outcome
from d5test.report import Report, page, verify
from tests.gate.versions import IN_CLASS, World

SCHEMA = Path(__file__).parents[2] / "d5test" / "compare" / "schema.json"
RESOLUTION = 2**-53 / 2**-24
"""Of a ratio in float32."""


def name(k: int) -> str:
    return f"suite.py::test_corpus[c{k}]"


def examined(world: World, count: int = 5, **options: Any) -> Examination:
    return examine(world.cases(count), world.open, **options)  # type: ignore[arg-type]


def decided(found: Examination, folder: Path) -> Outcome:
    """What is decided of the corpus alone."""
    made = outcome(Findings(), 0.05, folder, corpus=found)
    assert made is not None
    return made


def verdicts(found: Outcome) -> dict[str, list[tuple[str, str]]]:
    """Metric and benchmark of all that is not the same, by verdict."""
    told: dict[str, list[tuple[str, str]]] = {}
    for decision in found.comparison.decisions:
        values = decision.values
        if decision.verdict != "same":
            told.setdefault(decision.verdict, []).append((values.metric.name, values.benchmark))
    return told


def test_identical_versions_are_the_same_in_every_metric(tmp_path: Path) -> None:
    found = decided(examined(World()), tmp_path)
    assert found.comparison.verdict == "passed"
    metrics = Counter(d.values.metric.name for d in found.comparison.decisions)
    assert metrics == dict.fromkeys(
        ("right", "error / bar", "share judged", "arithmetic class"), 5
    )


@pytest.mark.parametrize(
    ("judgement", "metric"),
    [
        ({"ratio": 0.2501}, "error / bar"),
        ({"ratio": 0.25 + 1.5 * RESOLUTION}, "error / bar"),
        ({"share": 0.99}, "share judged"),
        ({"arithmetic": "S"}, "arithmetic class"),
        ({"right": False, "ratio": None}, "right"),
    ],
)
def test_what_is_worse_is_named(judgement: dict[str, Any], metric: str, tmp_path: Path) -> None:
    found = decided(examined(World(wrong={"c3": {**IN_CLASS, **judgement}})), tmp_path)
    assert verdicts(found) == {"worse": [(metric, name(3))]}
    assert {d.verdict for k in (0, 1, 2, 4) for d in found.of(name(k))} == {"same"}


def test_a_ratio_is_compared_up_to_the_rounding_of_the_reference(tmp_path: Path) -> None:
    near = {**IN_CLASS, "ratio": 0.25 + 0.5 * RESOLUTION}
    assert verdicts(decided(examined(World(wrong={"c3": near})), tmp_path)) == {}


def test_what_is_better_is_told(tmp_path: Path) -> None:
    found = decided(examined(World(wrong={"c1": {**IN_CLASS, "arithmetic": "F"}})), tmp_path)
    assert verdicts(found) == {"better": [("arithmetic class", name(1))]}


def test_a_case_that_gives_no_result_has_vanished_with_the_reason(tmp_path: Path) -> None:
    world = World(broken={"c2": "no kernel\nimage", "b1": "no kernel either"})
    gate = Gate(world.open)
    made = outcome(gate.measure(world.subjects(3)), 0.05, tmp_path, corpus=examined(world))
    assert made is not None
    assert made.vanished(name(2)) == "RuntimeError in call: no kernel image"
    assert "no kernel either" in made.vanished("suite.py::test_time[b1]")
    assert [v.name for v in made.comparison.matching.vanished] == [
        "suite.py::test_time[b1]", name(2),
    ]  # fmt: skip
    assert made.comparison.verdict == "regressed"


def test_what_the_old_version_cannot_do_is_not_compared(tmp_path: Path) -> None:
    world = World()
    first, *others = world.cases(3)

    def judge(client: Any) -> Any:
        if client.arm == "old":
            raise Unsupported("mine has no row for it")
        return first.judge(client)

    found = examine([replace(first, judge=judge), *others], world.open)  # type: ignore[arg-type]
    made = decided(found, tmp_path)
    assert found.compared == 2
    assert found.reasons == {"mine has no row for it": 1}
    assert made.of(name(0)) == []
    assert made.broken(name(0)) == "mine has no row for it"
    assert made.comparison.matching.new == [name(0)]
    assert made.comparison.verdict == "passed"


def test_what_cannot_be_opened_has_lost_all_cases(tmp_path: Path) -> None:
    world = World()

    def opens(arm: str, backend: str) -> Any:
        if arm == "new":
            raise Unsupported("libmine.so.3: cannot open\nshared object file")
        return world.open(arm, backend)

    made = decided(examine(world.cases(4), opens), tmp_path)
    assert {v.reason for v in made.comparison.matching.vanished} == {
        "libmine.so.3: cannot open shared object file"
    }
    assert len(made.comparison.matching.vanished) == 4


def test_both_versions_are_judged_one_after_the_other_in_one_worker_each() -> None:
    world = World()
    examined(world, 30)
    opened = [entry[1] for entry in world.log if entry[0] == "open"]
    closed = [entry[1] for entry in world.log if entry[0] == "close"]
    assert opened == ["old", "new"]
    assert sorted(closed) == sorted(opened)
    judged = [entry[1:] for entry in world.log if entry[0] == "judge"]
    names = [judged[k][1] for k in range(0, 60, 2)]
    assert judged == [(arm, case) for case in names for arm in ("old", "new")]
    assert sorted(names) == sorted(f"c{k}" for k in range(30))


def test_the_budget_leaves_cases_out_of_all_operators_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A second a case: of a minute, half is for the corpus, whose last 30 cases are left."""
    world = World()
    clock = time.monotonic
    monkeypatch.setattr(
        "d5test.gate.corpus.time.monotonic",
        lambda: clock() + sum(entry[0] == "judge" for entry in world.log) / 2,
    )
    found = examined(world, 60, budget=60.0)
    assert 28 <= len(found.cases) <= 31
    assert len(found.cases) + len(found.left) == 60
    assert found.compared == len(found.cases)
    left = {int(case.partition("[c")[2].rstrip("]")) for case in found.left}
    assert min(len(left & set(range(k, k + 20))) for k in (0, 20, 40)) > 2
    made = decided(found, tmp_path)
    assert {d.values.benchmark for d in made.comparison.decisions} == set(found.cases)
    assert made.comparison.verdict == "passed"


def test_without_time_nothing_is_judged_and_nothing_has_vanished(tmp_path: Path) -> None:
    found = examined(World(), 5, budget=0.0)
    assert (len(found.left), found.cases) == (5, {})
    assert outcome(Findings(), 0.05, tmp_path, corpus=found) is None


def test_another_number_of_threads_is_told() -> None:
    world = World()
    assert examined(world).notes == []

    class Wider(World):
        def open(self, arm: str, backend: str) -> Any:
            self.threads = 1 if arm == "old" else 2
            return super().open(arm, backend)

    (note,) = examined(Wider()).notes
    assert "mine compute with 1 and 2 threads" in note
    assert "give --threads" in note


def test_it_stands_in_the_files_of_the_first_session_and_beside_times(tmp_path: Path) -> None:
    world = World(slower={"b1": 1.3})
    made = outcome(
        Gate(world.open).measure(world.subjects(3)), 0.05, tmp_path, corpus=examined(world)
    )
    assert made is not None
    held = {}
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for path in tmp_path.glob("*.json"):
        content = json.loads(path.read_text())
        validator.validate(content)
        held[path.stem] = [b["name"] for b in content["benchmarks"] if "[c" in b["name"]]
        rounds = {b["name"]: b["stats"]["rounds"] for b in content["benchmarks"]}
        assert all(rounds[case] == 1 for case in held[path.stem])
    assert {stem for stem, names in held.items() if names} == {"old-1", "new-1"}
    assert sorted(held["old-1"]) == [f"test_corpus[c{k}]" for k in range(5)]
    worse = [d for d in made.comparison.decisions if d.verdict == "worse"]
    assert [(d.values.metric.name, d.values.benchmark) for d in worse] == [
        ("time", "suite.py::test_time[b1]")
    ]
    assert {d.verdict for k in range(5) for d in made.of(name(k))} == {"same"}
    assert not made.comparison.matching.vanished


def test_a_page_of_it_is_verified(tmp_path: Path) -> None:
    world = World(wrong={"c2": {**IN_CLASS, "arithmetic": "S"}})
    made = outcome(
        Gate(world.open).measure(world.subjects(2)), 0.05, tmp_path, rounds=64,
        corpus=examined(world),
    )  # fmt: skip
    assert made is not None
    text = page(Report(made.old, made.new, 0.05, made.paired, made.rule))
    verified = verify(text)
    assert not verified.differences
    assert verified.count >= 2 + 5 * 4
    assert "arithmetic class of c2" in text
