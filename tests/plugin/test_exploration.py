"""Hypothesis around a check: what is counted, what raises, when it stops."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from sortedcontainers import SortedSet

from d5test.backends.base import Unsupported
from d5test.case import Case, Tensor
from d5test.checks import Check
from d5test.client.messages import Refused, RowInfo
from d5test.exploration import explore as exploration
from d5test.exploration.draws import seed_of
from d5test.exploration.explore import Exploration, Undrawable
from d5test.exploration.shortage import NEEDED, refused, shortage
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Evidence, Fault, kind_of_fault
from d5test.outcome.tally import Inapplicable, Tally
from d5test.plugin.outcomes import attach, tallies_of
from d5test.reference.operators import OPERATORS
from d5test.strategies.sizes import Seed

Relu = OPERATORS["Relu"]
GOOD = Judgement(ratio=0.25, telling=True)
DULL = Judgement(ratio=0.25, telling=False)
VOID = Judgement(void=True)


def cases(operator: Any, dtype: str) -> st.SearchStrategy[Case]:
    sides = st.integers(1, 60)
    return st.builds(
        lambda n, m, seed: Case(operator(), (Tensor((n, m), dtype),), seed),
        sides,
        sides,
        st.integers(0, 2**32 - 1),
    )


def explore(
    run: Callable[[Any, Case], Judgement], number: int = 1, **more: Any
) -> tuple[Tally, list[Fault], Exploration]:
    kind = more.pop("kind", "value")
    check = Check("forward", run, kind=kind, cases=more.pop("cases", cases))
    tally = Tally("tiny", "forward", "Relu", "float32")
    given: dict[str, Any] = {"examples": 25, "covered": lambda _: False, **more}
    found = Exploration(None, check, Relu, "float32", tally, **given)
    return tally, found.faults(Seed(number)), found


def fault(kind: str, case: Case) -> Fault:
    nothing = Evidence((), "returns")
    return kind_of_fault(kind)("forward", case, f"{kind} of {case}", {}, None, nothing)


def test_outcomes_are_counted() -> None:
    def run(client: Any, case: Case) -> Judgement:
        n, m = case.shapes[0] or ()
        if n % 3 == 0:
            raise Unsupported("threes")
        return VOID if m % 3 == 0 else GOOD

    tally, faults, _ = explore(run, covered=lambda case: (case.shapes[0] or ())[0] % 5 == 0)
    assert not faults
    assert tally.drawn >= 25
    assert min(tally.right, tally.known, tally.unsupported, tally.void) > 0
    assert tally.reasons == {"threes": tally.unsupported}
    assert tally.telling == tally.right >= NEEDED
    assert (tally.worst, tally.share) == (0.25, 1.0)


def test_each_drawn_shape_is_judged_on_several_sets_of_data() -> None:
    judged: list[Case] = []

    def run(client: Any, case: Case) -> Judgement:
        judged.append(case)
        if case.seed % 3 == 2 and len(judged) > 12:
            raise fault("value", case)
        return GOOD

    tally, (found,), _ = explore(run, data_sets=3)
    assert [case.shapes for case in judged[0:12:3]] == [case.shapes for case in judged[2:12:3]]
    assert len({case.shapes for case in judged[:12]}) > 1
    assert len({case.seed for case in judged[:3]}) == 3
    assert tally.drawn >= 12
    assert found.case.seed % 3 == 2

    def constant(operator: Any, dtype: str) -> st.SearchStrategy[Case]:
        return st.integers(0, 10**9).map(lambda x: Case(Relu(), (Tensor((), dtype, data=(x,)),)))

    judged.clear()
    explore(run, cases=constant, data_sets=3)
    assert len({case.inputs for case in judged}) == len(judged)


@pytest.mark.parametrize("growing", [True, False])
def test_a_reduced_fault_says_how_wrong_others_were(growing: bool) -> None:
    def run(client: Any, case: Case) -> Judgement:
        n, _ = case.shapes[0] or ()
        if n < 7:
            return GOOD
        wrong = fault("value", case)
        wrong.judgement = Judgement(ratio=float(n if growing else 7), got=n / 2, want=1.0)
        raise wrong

    _, (found,), exploration = explore(run)
    assert found.judgement is not None
    assert found.judgement.ratio == 7
    worst = exploration.furthest["value"]
    said = (
        f"{worst.ratio:.4g} times the bar in another case of this test: got {worst.got}, want 1.0"
    )
    assert found.details == ({"at worst": said} if growing else {})
    assert worst.ratio > 14 or not growing
    assert found.drawn is exploration.drawn["value"]
    assert (found.drawn.case.shapes[0] or (0,))[0] >= 7


def test_each_kind_is_found_and_shrunk_although_one_line_raises_them() -> None:
    def run(client: Any, case: Case) -> Judgement:
        n, m = case.shapes[0] or ()
        if n >= 20:
            raise fault("value", case)
        if m >= 30:
            raise fault("shape", case)
        return GOOD

    _, faults, found = explore(run)
    assert [f.kind for f in faults] == ["shape", "value"]
    assert [f.case.shapes[0] for f in faults] == [(1, 30), (20, 1)]
    assert [f.case.seed for f in faults] == [0, 0]
    assert found.steady


def test_time_runs_out_while_one_of_several_kinds_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hypothesis repeats the smallest case of each kind at the end, and groups what is raised."""
    calls: list[Case] = []

    def faults(last: float) -> list[Fault]:
        """What is found where time is up after so many calls."""

        def run(client: Any, case: Case) -> Judgement:
            calls.append(case)
            raise fault("value" if case.seed % 2 else "shape", case)

        calls.clear()
        clock = SimpleNamespace(monotonic=lambda: 0.0 if len(calls) < last else 1e9)
        monkeypatch.setattr(exploration, "time", clock)
        return explore(run)[1]

    assert len(faults(float("inf"))) == 2
    for last in range(len(calls) - 6, len(calls) + 1):
        assert faults(last)


def test_a_fault_that_does_not_come_back_is_reported_all_the_same() -> None:
    calls: list[Case] = []

    def run(client: Any, case: Case) -> Judgement:
        calls.append(case)
        if len(calls) == 7:
            raise fault("nondeterministic", case)
        return GOOD

    tally, faults, found = explore(run)
    assert [f.case for f in faults] == [calls[6]]
    assert not found.steady
    assert tally.right == 6


def test_drawing_goes_on_until_enough_was_told() -> None:
    def one_in(n: int) -> Callable[[Any, Case], Judgement]:
        return lambda _, case: GOOD if case.seed % n == 0 else DULL

    tally, _, _ = explore(one_in(2))
    assert 25 <= tally.drawn < 75
    assert tally.telling >= exploration.AIM
    tally, _, _ = explore(one_in(15))
    assert 75 < tally.drawn < 300
    assert tally.telling >= exploration.AIM
    tally, _, _ = explore(lambda _, case: DULL)
    assert tally.drawn == 75
    assert "strict enough" in shortage(tally, SimpleNamespace(fixed=False, kind="value"), 25)
    tally, _, _ = explore(one_in(10**9), kind="structural")
    assert tally.drawn == 25


def test_it_goes_on_longer_where_a_backend_does_few_of_the_cases() -> None:
    def one_in(n: int) -> int:
        """How many cases are drawn where each n-th is one that the backend does."""
        calls = count(1)

        def run(client: Any, case: Case) -> Judgement:
            if next(calls) % n:
                raise Unsupported("even windows")
            return GOOD

        tally, _, _ = explore(run)
        assert tally.telling == min(tally.drawn // n, max(exploration.AIM, 25 // n))
        return tally.drawn

    assert [one_in(n) for n in (1, 2, 9, 10**9)] == [25, 30, 9 * exploration.AIM, 75]


@pytest.mark.parametrize(
    ("counts", "examples", "kind", "missing"),
    [
        ({"right": 25, "telling": 10}, 25, "value", False),
        ({"right": 25, "telling": 9}, 25, "value", True),
        ({"right": 8, "telling": 4}, 8, "value", False),
        ({"right": 8, "telling": 3}, 8, "value", True),
        ({"right": 8}, 25, "structural", False),
        ({"void": 8}, 25, "structural", True),
        ({"void": 8, "unsupported": 8}, 25, "value", True),
        ({}, 25, "value", True),
        ({"unsupported": 25}, 25, "value", False),
        ({"known": 20, "unsupported": 5}, 25, "value", False),
        ({"right": 1, "left_out": "the budget was spent"}, 25, "value", False),
        ({"right": 1, "fault": 1}, 25, "value", False),
        ({"right": 25, "telling": 25, "shares": {"dx": [2.5, 25]}}, 25, "value", False),
        ({"right": 25, "telling": 25, "shares": {"dx": [2.4, 25]}}, 25, "value", True),
    ],
)
def test_what_counts_as_untested(
    counts: dict[str, Any], examples: int, kind: str, missing: bool
) -> None:
    tally = Tally("tiny", "forward", "Relu", "float32", **counts)
    check = SimpleNamespace(fixed=False, kind=kind)
    assert bool(shortage(tally, check, examples)) is missing


ROW = RowInfo(True, 1, "P", ("float32",), "", ours=False)


@pytest.mark.parametrize(
    ("counts", "row", "expected"),
    [
        ({"unsupported": 25, "refused_by_row": 25}, ROW, True),
        ({"unsupported": 25, "refused_by_row": 25, "inapplicable": 5}, ROW, True),
        ({"unsupported": 25, "refused_by_row": 24}, ROW, False),
        ({"unsupported": 24, "refused_by_row": 24, "right": 1}, ROW, False),
        ({"unsupported": 24, "refused_by_row": 24, "known": 1}, ROW, False),
        ({"inapplicable": 25}, ROW, False),
        ({"unsupported": 25, "refused_by_row": 25}, replace(ROW, dtypes=("float64",)), False),
        ({"unsupported": 25, "refused_by_row": 25}, replace(ROW, ours=True), False),
        ({"unsupported": 25, "refused_by_row": 25}, None, False),
    ],
)
def test_a_row_that_refuses_all_that_is_drawn_is_untested(
    counts: dict[str, Any], row: RowInfo | None, expected: bool
) -> None:
    tally = Tally("tiny", "forward", "Relu", "float32", **counts)
    assert refused(tally, SimpleNamespace(name="forward"), row) is expected
    assert not refused(tally, SimpleNamespace(name="layout"), row)


def test_whether_the_row_refuses_or_the_framework() -> None:
    tally = Tally("tiny", "forward", "Relu", "float32")
    tally.count_unjudged(Unsupported("the row"))
    tally.count_unjudged(Refused("the framework"))
    assert (tally.unsupported, tally.refused_by_row) == (2, 1)


def test_the_same_seed_draws_the_same_cases() -> None:
    def drawn(number: int) -> list[Case]:
        seen: list[Case] = []
        explore(lambda _, case: seen.append(case) or GOOD, number)
        return seen

    assert drawn(seed_of("forward", "Relu", 0)) == drawn(seed_of("forward", "Relu", 0))
    assert drawn(seed_of("forward", "Relu", 0)) != drawn(seed_of("forward", "Relu", 1))


def test_what_else_is_loaded_changes_no_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis itself draws the constants of each module outside of site-packages."""

    def drawn() -> list[Case]:
        seen: list[Case] = []
        explore(lambda _, case: seen.append(case) or GOOD, examples=200)
        return seen

    before = drawn()
    others = providers.Constants(integers=SortedSet(range(70_001, 70_400)))
    monkeypatch.setattr(providers, "_get_local_constants", lambda: others)
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", LRUCache(1024))
    assert drawn() == before


def test_shrinking_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "SHRINKING", 0.2)

    def run(client: Any, case: Case) -> Judgement:
        time.sleep(0.05)
        raise fault("hang", case)

    began = time.monotonic()
    _, faults, _ = explore(run)
    assert [f.kind for f in faults] == ["hang"]
    assert time.monotonic() - began < 2


def test_a_budget_ends_the_drawing() -> None:
    def run(client: Any, case: Case) -> Judgement:
        time.sleep(0.02)
        return GOOD

    tally, _, _ = explore(run, until=time.monotonic() + 0.1)
    assert 0 < tally.drawn < 10
    assert tally.left_out


def test_an_error_of_d5test_is_no_fault() -> None:
    def run(client: Any, case: Case) -> Judgement:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        explore(run)
    assert "Case(Relu()" in "".join(caught.value.__notes__)


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(Undrawable):
        explore(lambda *_: GOOD, cases=lambda *_: st.nothing())


def test_tallies_survive_a_report() -> None:
    node = SimpleNamespace(user_properties=[("other", 1)], when="call", passed=True)
    full = Tally("tiny", "forward", "Relu", "float32")
    full.count_unjudged(Unsupported("none"))
    full.count_unjudged(Inapplicable("not asked"))
    full.count_right(Judgement(ratio=float("inf"), arithmetic="P", telling=True), "a case")
    fault = kind_of_fault("value")("forward", "a case", "first", {"then": "second"})
    full.count_fault(fault, "x.py")
    attach(node, [full, Tally("tiny", "gradient", "Relu", "float64")])
    again = list(tallies_of([node, SimpleNamespace(when="teardown", passed=True)]))
    assert again == [full, Tally("tiny", "gradient", "Relu", "float64")]
    assert full.faults[0]["text"] == "first"
    assert type(node.user_properties[1][1]) is str


def test_cases_are_drawn_independently() -> None:
    seeds = []
    explore(lambda client, case: seeds.append(case.seed) or GOOD, examples=100)
    assert len(set(seeds)) > 0.75 * len(seeds)  # Hypothesis likes 0; mutated copies would halve it
