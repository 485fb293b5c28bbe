"""The sizes of cases: dealt evenly, as their names say, and small where they are reduced."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf, prod
from typing import Any

import pytest
from hypothesis import given, seed, settings

from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.exploration import explore
from d5test.exploration.bisecting import bisected
from d5test.exploration.draws import PROFILE, reproducible_draws, seed_of_cell
from d5test.exploration.explore import Exploration
from d5test.outcome.tally import Tally
from d5test.problems.real import small_problems
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.windows import Conv
from d5test.strategies import cases
from d5test.strategies import sizes as kinds
from d5test.strategies.sizes import Deal, Seed, Sizes
from tests.faults.score import Local
from tests.faults.wrong_sizes import PLANTED, AtSizes, Planted, found
from tests.nightly import thinned

Shapes = Sequence[tuple[int, ...] | None]
EXAMPLES = 25


def dealt(operator: str, number: int = 0, largest: int = kinds.LARGEST) -> list[tuple[str, Case]]:
    """The cases of a cell with their kinds of sizes, in the order in which they are judged."""
    deal = Deal(Seed(number, number), 10, largest, small_problems(OPERATORS[operator]))
    judged: list[tuple[str, Case]] = []

    def draw(case: Case) -> None:
        if deal.shown(case.shapes) and len(judged) < EXAMPLES:
            judged.append((deal.last.kind, case))

    drawn = cases(OPERATORS[operator], "float32", sizes=lambda key: deal.sizes(key, fresh=True))
    with reproducible_draws():
        seed(number)(settings(PROFILE, max_examples=3 * EXAMPLES)(given(drawn)(draw)))()
    return judged


SHOWN: dict[tuple[str, str], Callable[[Shapes, int], bool]] = {
    ("MatMul", kinds.TIED): lambda shapes, n: {*shapes[0][-2:], *shapes[1][-2:]} == {n},  # type: ignore[index]
    ("Softmax", kinds.TIED): lambda shapes, n: set(shapes[0]) == {n},  # type: ignore[arg-type]
    ("Exp", kinds.BOUNDARY): lambda shapes, n: n in (shapes[0] or ()),
    ("Conv", kinds.CHANNELS): lambda shapes, n: shapes[1][1] == n,  # type: ignore[index]
    ("Conv", kinds.DEPTHWISE): lambda shapes, n: shapes[1][1] == 1 and shapes[0][1] == n,  # type: ignore[index]
    ("Relu", kinds.PAIR): lambda shapes, n: (shapes[0] or ()).count(n) == 2,
    ("Add", kinds.GRAIN): lambda shapes, n: any(n in (shape or ()) for shape in shapes),
    ("Tanh", kinds.RANKS): lambda shapes, n: len(shapes[0] or ()) == 4 + n,
}


@pytest.mark.parametrize(("operator", "kind"), SHOWN)
def test_a_case_has_what_its_kind_is_named_after(operator: str, kind: str) -> None:
    size = {kinds.RANKS: 2, kinds.TIED: 4, kinds.GRAIN: 32769}.get(kind, 16)
    asked, seen = Sizes(kind, size, at=1, sides=2), 0

    def draw(case: Case) -> None:
        nonlocal seen
        if asked.shown(case.shapes) and not any(t and t.data for t in case.inputs):
            seen += 1
            vector = min(len(shape or ()) for shape in case.shapes) < 2
            assert SHOWN[operator, kind](case.shapes, size) or (vector and operator == "MatMul")

    drawn = cases(OPERATORS[operator], "float32", sizes=lambda key: asked)
    with reproducible_draws():
        seed(1)(settings(PROFILE, max_examples=40)(given(drawn)(draw)))()
    assert seen > 10


@pytest.mark.parametrize("operator", ["MatMul", "Conv", "Add", "LSTM", "ReduceSum", "Attention"])
def test_kinds_are_dealt_evenly(operator: str) -> None:
    counts = Counter(kind for number in (0, 1) for kind, _ in dealt(operator, number))
    assert counts.total() == 2 * EXAMPLES
    assert 20 <= counts[kinds.DIFFERENT] <= 24
    assert min(counts[kinds.TIED], counts[kinds.BOUNDARY]) >= 5
    offered = {
        "Conv": {kinds.CHANNELS, kinds.DEPTHWISE, kinds.REAL},
        "Add": {kinds.GRAIN, kinds.RANKS},
        "LSTM": {kinds.REAL},
    }
    assert offered.get(operator, set()) <= counts.keys()


def test_the_same_seed_deals_the_same_cases_and_another_others() -> None:
    first, again, other = (list(map(repr, dealt("Conv", number))) for number in (3, 3, 4))
    assert first == again
    assert first != other


def test_boundaries_reach_each_axis_and_each_class() -> None:
    drawn = [case for n in range(6) for kind, case in dealt("Gemm", n) if kind == kinds.BOUNDARY]
    large = [
        (axis, side)
        for case in drawn
        for axis, side in enumerate((case.shapes[0] or ()) + (case.shapes[1] or ()))
        if side > 6
    ]
    assert {axis for axis, _ in large} == {0, 1, 2, 3}
    for sizes in (kinds.MODERATE, kinds.WIDER, kinds.LONG):
        assert {side for _, side in large} & set(sizes)


def pads(case: Case) -> tuple[int, ...]:
    """Of each axis, how much is added at both ends."""
    shape, ends, axes = case.shapes[0] or (), case.inputs[1], (*case.inputs, None, None)[3]
    assert ends is not None
    added, sides = [0] * len(shape), ends.data or ()
    named = range(len(shape)) if axes is None else axes.data or ()
    for i, axis in enumerate(named):
        added[axis] = sides[i] + sides[i + len(sides) // 2]
    return tuple(added)


MET: dict[str, Callable[[Case], bool]] = {
    "Pad: an image, its pixels reflected": lambda c: (
        c.op.mode == "reflect" and len(pads(c)) > 3 and not any(pads(c)[:2]) and any(pads(c))
    ),
    "Pad: wrapped around more than once": lambda c: (
        c.op.mode == "wrap" and any(x > 2 * n for n, x in zip(c.shapes[0], pads(c), strict=True))
    ),
    "Split: an empty part between others": lambda c: (
        len(c.inputs) > 1 and 0 in (c.inputs[1].data or ())[:-1] and any(c.inputs[1].data or ())
    ),
    "Einsum: an implicit result that is sorted": lambda c: (
        c.op.equation.replace(" ", "") in ("kj,ji", "ji")
    ),
    "Gemm: a column is added to a square": lambda c: (
        len(c.inputs) > 2 and c.inputs[2] is not None
        and c.shapes[2] == (len_of(c), 1) and c.shapes[0] == c.shapes[1] and len_of(c) > 1
    ),
    "CumSum: more terms than a block has": lambda c: (
        c.shapes[0][c.inputs[1].data[0]] > 256
    ),
    "RNN: more steps than a chunk has": lambda c: c.shapes[0][c.op.layout] > 32,
    "Conv: strides of patches": lambda c: max(c.op.strides or (1,)) > 3,
    "Conv: far dilations": lambda c: 2 < max(c.op.dilations or (1,)) < 5,
    "Concat: images": lambda c: len(c.shapes[0]) == 4,
    "Softmax: scores of heads": lambda c: len(c.shapes[0]) == 4 and c.op.axis in (-1, 3),
    "Clip: exchanged bounds": lambda c: (
        c.inputs[2:3] != () and c.inputs[1] is not None and c.inputs[2] is not None
        and c.inputs[1].data[0] > c.inputs[2].data[0]
    ),
}  # fmt: skip
"""What a stranger's wrong frameworks needed to be seen."""


def len_of(case: Case) -> int:
    return (case.shapes[0] or (0,))[0]


@pytest.mark.parametrize("what", MET)
def test_a_few_cells_meet(what: str) -> None:
    operator, _, _ = what.partition(":")
    met = [sum(MET[what](case) for _, case in dealt(operator, n)) for n in range(6)]
    assert sum(met) >= 3, met


def test_the_cells_of_an_operator_reach_other_sides_and_problems() -> None:
    """In four cells each of three or four sides is a long one once; no problem comes twice."""
    asked = [(c, dtype) for c in ("forward", "low_precision") for dtype in CHECKS[c].dtypes]
    cells = [seed_of_cell(CHECKS[c], "Conv", dtype) for c, dtype in asked]
    assert {seed.operator for seed in cells} == {cells[0].operator}
    problems = small_problems(OPERATORS["Conv"])
    turns = [list(islice(kinds._turns(seed, problems), 15)) for seed in cells]
    long = [s.at for turn in turns for s in turn if s.size in kinds.LONG]
    assert {at % 3 for at in long} == {0, 1, 2}
    assert {at % 4 for at in long} == {0, 1, 2, 3}
    real = [s.problem for turn in turns for s in turn if s.problem]
    assert len(real) == len(set(map(repr, real))) == 8


def test_a_check_says_how_large_a_case_may_be() -> None:
    for kind, case in dealt("Relu", largest=4096):
        (shape,) = case.shapes
        assert kind == kinds.DIFFERENT or prod(shape or ()) <= 4096


def cell(fault: Planted, sizes: str = kinds.MIXED) -> Exploration:
    """The forward check of a backend with this fault, in float32."""
    client: Any = Local("wrong", AtSizes(fault))
    tally = Tally("wrong", "forward", fault.operator, "float32")
    return Exploration(
        client, CHECKS["forward"], OPERATORS[fault.operator], "float32", tally, EXAMPLES,
        lambda case: False, sizes=sizes,
    )  # fmt: skip


def test_the_side_that_is_reported_is_the_smallest_that_fails() -> None:
    rule = Planted("from 45 terms on", "MatMul", lambda x, y: x[0].shape[-1] >= 45)
    (fault,) = cell(rule).faults(Seed(7))
    (*_, m, k), (*_, n) = fault.case.shapes  # type: ignore[misc]
    assert k == 45
    assert max(m, n) <= 4  # the simplest sides are 2, 3 and 4


def test_so_it_is_where_reducing_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "SHRINKING", 0.0)
    rule = Planted("from 45 terms on", "MatMul", lambda x, y: x[0].shape[-1] >= 45)
    (fault,) = cell(rule).faults(Seed(7))
    (*_, _, k), _ = fault.case.shapes  # type: ignore[misc]
    assert k == 45


def test_sides_that_need_not_agree_are_reduced_apart() -> None:
    judge = cell(Planted("16 rows", "Softmax", lambda x, y: len(x[0]) >= 16))
    (fault,) = judge.first([Case(OPERATORS["Softmax"](), (Tensor((48, 48)),))])
    assert bisected(fault, judge._again, inf).case.shapes == ((16, 2),)


def test_sides_that_must_agree_are_reduced_together() -> None:
    judge = cell(Planted("20 terms", "MatMul", lambda x, y: x[0].shape[-1] >= 20))
    (fault,) = judge.first([Case(OPERATORS["MatMul"](), (Tensor((48, 48)), Tensor((48, 48))))])
    assert bisected(fault, judge._again, inf).case.shapes == ((2, 20), (20, 2))


def test_a_fault_of_real_problems_is_reduced_to_the_sides_that_have_it() -> None:
    rule = Planted("70 channels", "Conv", lambda x, y: x[0].shape[1] >= 70 and x[1].shape[1] > 1)
    judge = cell(rule)
    inputs = Tensor((2, 128, 4, 4)), Tensor((96, 128, 1, 1))
    (fault,) = judge.first([Case(Conv(kernel_shape=(1, 1)), inputs)])
    assert bisected(fault, judge._again, inf).case.shapes == ((2, 70, 4, 4), (2, 70, 1, 1))


def test_real_problems_are_dealt_from_all_over() -> None:
    problems = [Case(OPERATORS["Relu"](), (Tensor((n,)),)) for n in range(1, 101)]
    turns = kinds._turns(Seed(3), problems)
    drawn = [s.problem.shapes[0][0] for s in islice(turns, 150) if s.problem]
    assert len(drawn) == 20
    assert {(n - 1) // 10 for n in drawn} == set(range(10))
    assert not any(s.problem for s in islice(kinds._turns(Seed(3), ()), 150))


def test_a_kind_that_is_never_drawn_as_asked_does_not_hold_up_the_others() -> None:
    problems = [Case(OPERATORS["Exp"](), (Tensor((3, 200)),))]
    deal = Deal(Seed(0), 1, problems=problems)
    deal.shown(((2,),))  # nothing else is shown: what is drawn, a filter takes out
    dealt = [deal.sizes(key, fresh=True).kind for key in range(1, 15 * kinds.DRAWS)]
    assert {kinds.TIED, kinds.BOUNDARY, kinds.REAL} <= set(dealt)


def test_a_fault_of_small_cases_stays_small() -> None:
    (fault,) = cell(Planted("always", "Add", lambda x, y: True)).faults(Seed(7))
    assert max(side for shape in fault.case.shapes for side in shape or ()) <= 3


def test_small_sizes_can_be_asked_for_alone() -> None:
    rule = Planted("from 45 terms on", "MatMul", lambda x, y: 45 <= x[0].shape[-1] < 192)
    assert not cell(rule, kinds.SMALL).faults(Seed(7))


@pytest.mark.parametrize(
    "fault", thinned(PLANTED), ids=lambda fault: f"{fault.operator}, {fault.name}"
)
def test_kernels_that_are_wrong_at_some_sizes_are_found(fault: Planted) -> None:
    assert found(fault, 1)
