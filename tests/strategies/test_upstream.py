"""Upstream gradients: dealt evenly, told by a case's repr, and normal where nothing is said."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.exploration.explore import Exploration
from d5test.known.reading import case_from
from d5test.known.where import holds
from d5test.numerics.judgement import Judgement
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS, Relu
from d5test.strategies.sizes import Seed
from d5test.strategies.upstream import Upstreams, kinds
from tests.faults.score import Local
from tests.faults.wrong import Wrong

CASE = Case(Relu(), (Tensor((2, 3)),))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_each_kind_is_met_in_25_cases(dtype: str) -> None:
    upstreams = Upstreams(7, dtype)
    dealt = [upstreams.given(Case(Relu(), CASE.inputs, seed), fresh=True).dy for seed in range(25)]
    counts = Counter(dealt)
    assert counts.keys() == {("normal",), *kinds(dtype)}
    assert counts["normal",] == 17
    del counts["normal",]
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_case_that_is_drawn_again_has_the_same() -> None:
    upstreams = Upstreams(7, "float32")
    cases = [Case(Relu(), CASE.inputs, seed) for seed in range(9)]
    first = [upstreams.given(case, fresh=True) for case in cases]
    assert [upstreams.given(case, fresh=False) for case in cases] == first
    assert upstreams.given(Case(Relu(), CASE.inputs, 99), fresh=False).dy == ("normal",)


def test_the_repr_says_what_is_not_normal() -> None:
    assert "dy" not in repr(CASE)
    scaled = Case(Relu(), CASE.inputs, 5, dy=("scaled", -20))
    assert repr(scaled) == "Case(Relu(), (Tensor((2, 3)),), seed=5, dy=('scaled', -20))"
    assert case_from(repr(scaled), OPERATORS) == scaled
    with pytest.raises(ValueError, match="cannot be made"):
        case_from("Case(Relu(), (Tensor((2, 3)),), dy=('nosuch',))", OPERATORS)
    assert holds({"dy": "scaled"}, scaled)
    assert not holds({"dy": "scaled"}, CASE)


def test_scaling_is_exact() -> None:
    outputs = (np.zeros((2, 3)),)
    (dy,) = CASE.upstream(outputs)
    (scaled,) = Case(Relu(), CASE.inputs, dy=("scaled", -20)).upstream(outputs)
    assert dy is not None
    np.testing.assert_array_equal(scaled, dy * np.float32(2.0**-20))


class OffByScale(Wrong):
    """Gradients below 1e-4 are flushed."""

    def backward(self, gradients: Any, inputs: Any, grads: Any) -> Any:
        small = all(np.abs(dy).max() < 1e-4 for dy in grads)
        return [np.zeros_like(dx) if small else dx for dx in gradients]


def test_a_fault_of_one_kind_is_reduced_and_keeps_it() -> None:
    tally = Tally("wrong", "gradient", "Tanh", "float32")
    exploration = Exploration(
        Local("wrong", OffByScale()), CHECKS["gradient"], OPERATORS["Tanh"], "float32", tally, 25,
        lambda _: False,
    )  # fmt: skip
    (fault,) = exploration.faults(Seed(3))
    assert fault.case.dy == ("scaled", -20)
    assert np.prod(fault.case.shapes[0]) <= 4


def test_checks_of_another_kind_have_normal_ones() -> None:
    seen: list[Case] = []

    def run(client: object, case: Case) -> Judgement:
        seen.append(case)
        return Judgement(telling=True)

    for name, other in (("gradient", True), ("numerical_gradient", False)):
        seen.clear()
        tally = Tally("numpy", name, "Tanh", "float64")
        check = replace(CHECKS[name], run=run)
        honest = Local("numpy", Wrong())
        Exploration(
            honest, check, OPERATORS["Tanh"], "float64", tally, 25, lambda _: False
        ).faults(Seed(3))
        assert any(case.dy != ("normal",) for case in seen) == other


def test_in_every_third_case_one_input_alone_wants_a_gradient() -> None:
    upstreams, two = Upstreams(7, "float32"), (Tensor((2, 3)), Tensor((3,)))
    dealt = [
        upstreams.given(Case(OPERATORS["Add"](), two, seed), fresh=True) for seed in range(30)
    ]
    assert Counter(case.alone for case in dealt) == {None: 20, 0: 5, 1: 5}
    assert all(case.dy == ("normal",) for case in dealt if case.alone is not None)
    single = [upstreams.given(Case(Relu(), CASE.inputs, seed), fresh=True) for seed in range(30)]
    assert {case.alone for case in single} == {None}
    alone = Case(OPERATORS["Add"](), two, alone=1)
    assert repr(alone) == "Case(Add(), (Tensor((2, 3)), Tensor((3,))), alone=1)"
    assert case_from(repr(alone), OPERATORS) == alone
    assert (alone.wanted, alone.pullable) == ((1,), (0, 1))
    assert holds({"alone": [1, 2]}, alone)
    assert not holds({"alone": 0}, alone)
