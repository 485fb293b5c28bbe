"""Wrong divisions of a network are found, by the check that is meant to; right ones are not."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from d5test.distributed.checks import table
from d5test.distributed.communicator import Virtual
from d5test.distributed.division import DIVISION, DIVISIONS
from d5test.outcome.fault import Fault
from d5test.reference.pipelines import Division, Plan, undivided
from tests.distributed import wrong_division as wrong
from tests.distributed.test_planted_optimizers import first_of

CASES = 25


def first_fault(subject: str, division: Any, check: str) -> Fault | None:
    row, comm = DIVISION[check], Virtual()
    object.__setattr__(comm, "division", division)
    return first_of(row, comm, islice(table(row, subject, comm.sizes, "float32", 0), CASES))


@pytest.mark.parametrize(
    ("subject", "division", "check", "kind"),
    [
        ("1f1b", wrong.StaleActivations, "gradients", "value"),
        ("1f1b", wrong.MicrobatchLost, "gradients", "value"),
        ("column_row", wrong.MicrobatchLost, "gradients", "value"),
        ("hybrid-1f1b", wrong.NotSummedBack, "gradients", "value"),
        ("hybrid-gpipe", wrong.OwnMean, "gradients", "value"),
        ("gpipe", wrong.OneAfterTheOther, "bubble", "bubble"),
        ("1f1b", wrong.KeepsAll, "bubble", "bubble"),
        ("1f1b", wrong.SendsFirst, "bubble", "deadlock"),
        ("column_row", wrong.SummedTwice, "division_traffic", "volume"),
        ("hybrid-gpipe", wrong.NotSummedBack, "division_traffic", "volume"),
        ("column_row-sequence", wrong.OwnRowsOfOwnSum, "gradients", "value"),
        ("column_row-sequence", wrong.NextRows, "gradients", "value"),
        ("column_row-sequence", wrong.KeepsAllRows, "bubble", "bubble"),
        ("column_row-sequence", wrong.SumsAllRows, "division_traffic", "volume"),
        ("hybrid-1f1b", wrong.SumsAllRows, "division_traffic", "volume"),
    ],
)
def test_it_is_found(subject: str, division: Any, check: str, kind: str) -> None:
    fault = first_fault(subject, division, check)
    assert fault is not None
    assert fault.kind == kind


@pytest.mark.parametrize("check", DIVISION)
@pytest.mark.parametrize("subject", DIVISIONS)
def test_nothing_is_found_in_what_is_right(subject: str, check: str) -> None:
    assert first_fault(subject, Division, check) is None


@pytest.mark.parametrize("check", DIVISION)
@pytest.mark.parametrize("subject", ["gpipe", "hybrid-gpipe"])
def test_the_order_in_which_microbatches_come_back_is_free(subject: str, check: str) -> None:
    assert first_fault(subject, wrong.InOrder, check) is None


def test_a_bubble_is_that_of_the_formula() -> None:
    assert Plan(stages=4, microbatches=12).bubble() == 0.2
    assert [Plan(stages=4, microbatches=12, order="1f1b").kept(s) for s in range(4)] == [
        4,
        3,
        2,
        1,
    ]


def test_divided_rows_cost_a_gather_more_and_keep_less() -> None:
    """With 4 ranks that share a block: 5 to 4 in bytes, and a fourth of the rows."""
    whole, own = Plan(tensor=4), Plan(tensor=4, sequence=True)
    d, h, count = 5, 8, 12
    assert own.items(d, h, count) * 4 == whole.items(d, h, count) * 5
    columns = count * h // 4
    assert whole.kept_items(0, d, h, count) == 2 * count * d + columns
    assert own.kept_items(0, d, h, count) == 2 * count * d // 4 + columns


def test_the_undivided_gradient_is_the_difference_quotient() -> None:
    """Central differences of step 1e-6 in float64: an error of about 1e-10."""
    chance = np.random.Generator(np.random.Philox(3))
    stages, d, h, samples, step = 2, 3, 4, 5, 1e-6
    a, b = chance.normal(size=(stages, d, h)), chance.normal(size=(stages, h, d))
    x, targets = chance.normal(size=(2, samples, d))

    def loss() -> float:
        y = x
        for one_a, one_b in zip(a, b, strict=True):
            y = y + np.tanh(y @ one_a) @ one_b
        return float(((y - targets) ** 2).sum() / 2 / samples)

    for w, gradient in zip((a, b), undivided(a, b, x, targets), strict=True):
        for at in np.ndindex(*w.shape):
            before = w[at]
            w[at] = before + step
            up = loss()
            w[at] = before - step
            down = loss()
            w[at] = before
            assert gradient[at] == pytest.approx((up - down) / 2 / step, rel=1e-6, abs=1e-7)
