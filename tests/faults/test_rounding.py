"""A bias below one ULP is found over a cell, and no honest rounding is accused of one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.checks import CHECKS
from d5test.checks.bias import rounded_to_nearest
from d5test.client.client import WorkerClient
from d5test.exploration.draws import seed_of_cell
from d5test.exploration.explore import Exploration
from d5test.numerics.arithmetic import format_of
from d5test.numerics.bounds import Bound
from d5test.numerics.rounding import (
    CASES,
    FALSE_ALARM,
    OF_CASE,
    OF_CASE_ALONE,
    QUESTIONS,
    Rounding,
    Way,
    rounding_of,
)
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove
from d5test.strategies.sizes import Seed
from tests.faults import wrong_rounding as wrong
from tests.faults.score import Local
from tests.nightly import at_night
from tests.reproducer.strangers import run

EXAMPLES = 25
PARTS = {"float32": "forward", "float16": "low_precision", "bfloat16": "low_precision"}
DTYPES = (
    "bfloat16",
    *map(at_night, ("float16", "float32")),
)
DIRECTED = {
    wrong.Chopped: "toward zero",
    wrong.Outward: "away from zero",
    wrong.Up: "up",
    wrong.Down: "down",
}
HONEST = (wrong.Even, wrong.TiesAway, wrong.Twice, wrong.FlushedToZero)
BIASED = (wrong.Scaled, wrong.Stochastic, wrong.shifted(0.25), wrong.shifted(0.4))
"""Which may be wrong in a single case, but are not rounded in one direction."""


def explored(backend: Any, operator: str, dtype: str, seed: int = 0) -> list[Fault]:
    """The faults of a cell, as the default run with this seed finds them."""
    check = CHECKS[PARTS[dtype]]
    client = backend if isinstance(backend, WorkerClient) else Local("stored", backend)
    tally = Tally("stored", check.name, operator, dtype)
    cell = Exploration(
        client, check, OPERATORS[operator], dtype, tally, EXAMPLES, lambda case: False
    )
    return cell.faults(seed_of_cell(check, operator, dtype, seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", DIRECTED)
def test_a_direction_is_found_although_each_result_is_within_its_bar(
    backend: Any, dtype: str
) -> None:
    (fault,) = explored(backend(), "Softmax", dtype)
    assert fault.kind == "biased"
    direction = {"up": "away from zero", "down": "toward zero"}  # softmax is positive
    told = direction.get(DIRECTED[backend], DIRECTED[backend])
    assert f"rounded {told}, not to nearest" in fault.headline
    sign = "-" if told == "toward zero" else "+"
    assert fault.details["mean"].startswith(f"error {sign}0.")


def test_a_direction_is_told_from_the_others() -> None:
    for backend, direction in DIRECTED.items():
        (fault,) = explored(backend(), "LayerNormalization", "float32")
        assert f"rounded {direction}, not to nearest" in fault.headline


@pytest.mark.parametrize("backend", wrong.ONE_LOOP)
@pytest.mark.parametrize("operator", ["Sub", "Mul"])
def test_a_direction_of_one_of_two_loops_is_found(backend: Any, operator: str) -> None:
    (fault,) = explored(backend(), operator, "bfloat16")
    (part,) = [part for loop, part in wrong.ONE_LOOP.items() if loop is backend]
    assert f"results of operands {part} are rounded toward zero, not to nearest" in fault.headline


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", HONEST)
def test_rounding_to_nearest_is_not_accused(backend: Any, dtype: str) -> None:
    assert "biased" not in {fault.kind for fault in explored(backend(), "Erf", dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BIASED)
def test_errors_before_the_rounding_are_no_direction(backend: Any, dtype: str) -> None:
    faults = explored(backend(), "Tanh", dtype)
    assert "biased" not in {fault.kind for fault in faults}


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", PARTS)
def test_most_operators_show_it(dtype: str) -> None:
    operators = ("Tanh", "MatMul", "Softmax", "LayerNormalization", "Conv", "Erf", "Gemm", "Gelu")
    shown = [bool(explored(wrong.Chopped(), operator, dtype)) for operator in operators]
    assert sum(shown) >= 6


def told(value: Any, got: Any, dtype: str = "float32") -> Rounding:
    value = np.asarray(value, float)
    bound = Bound(value, np.full(value.shape, 1e-6), format_of(dtype))
    return rounding_of((bound,), (np.asarray(got, dtype),))


def test_what_is_counted() -> None:
    ulp = 2.0**-23
    value = [1 + 0.9 * ulp, -1 - 0.9 * ulp, 1 + 0.1 * ulp, 1 + 0.4 * ulp, 1.0]
    one = told(value, [1, -1, 1, 1, 1])
    assert (one.elements, one.nearest) == (4, 2)  # 1.0 is a number of the format
    assert one.error == pytest.approx(-2.3, abs=1e-6)
    assert one.ways["toward zero"] == Way(2, 2, 1, 1, 2, 1)  # 0.4 is too far from both
    assert one.ways["away from zero"] == Way(1, 0, 2, 0, 1, 1)
    assert one.ways["down"] == Way(1, 1, 2, 1, 1, 1)
    assert one.ways["up"] == Way(2, 1, 1, 0, 2, 1)


def test_of_a_case_few_different_elements_are_counted() -> None:
    ulp = 2.0**-23
    many = told(1 + np.arange(100) * 4 * ulp + 0.9 * ulp, 1 + np.arange(100) * 4 * ulp)
    assert many.ways["toward zero"] == Way(OF_CASE, OF_CASE, 0, 0, 100, 0)
    equal = told(np.full(100, 1 + 0.9 * ulp), np.ones(100))
    assert equal.ways["toward zero"].against == 1


def test_elements_that_share_no_error_count_each() -> None:
    ulp = 2.0**-23
    exact = 1 + np.arange(100) * 4 * ulp
    value = np.concatenate([exact + 0.9 * ulp, exact + 1000 * ulp + 0.1 * ulp])
    bound = Bound(value, np.full(value.shape, 1e-6), format_of("float32"))
    got = np.concatenate([exact, exact + 1000 * ulp]).astype("float32")
    way = rounding_of((bound,), (got,), alone=True).ways["toward zero"]
    assert way == Way(OF_CASE_ALONE, OF_CASE_ALONE, OF_CASE_ALONE, OF_CASE_ALONE, 100, 32)


def test_what_float64_cannot_tell_is_not_looked_at() -> None:
    assert told([1.1], [1.1], "float64") == Rounding()
    bound = Bound(np.array([1.1]), np.array([1.0]), format_of("float32"))
    assert not rounding_of((bound,), (np.array([1.1], "float32"),)).elements


def test_the_false_alarms_are_as_rare_as_promised() -> None:
    """A conviction takes at least so many elements that chance makes them that rarely."""
    least = next(n for n in range(100) if Way(n, n, n, n, n, CASES).convicted)
    assert QUESTIONS * 0.5**least <= FALSE_ALARM < QUESTIONS * 0.5 ** (least - 1)
    assert not Way(1000, 890, 1000, 1000, 1000, CASES).convicted  # not nearly all
    assert not Way(1000, 1000, 1000, 890, 1000, CASES).convicted
    assert not Way(1000, 1000, 1000, 1000, 1000, CASES - 1).convicted


BACKEND = """\
import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy


def tanh(op, x):
    return (np.tanh(x.astype(float)).view(np.int64) >> 29 << 29).view(float).astype(x.dtype)


class Mine(Numpy):
    rows = {"Tanh": Row(tanh, gradient="none", dtypes=("float32",))}
"""


def test_its_reproducer_shows_it_and_says_gone_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BACKEND)
    with WorkerClient(f"{path}:Mine", timeout=20) as client:
        (fault,) = explored(client, "Tanh", "float32")
        file, said = prove(fault, client, tmp_path / "out")
    done = run(file)
    assert (fault.kind, said, done.returncode) == ("biased", "", 1), done.stdout + done.stderr
    assert "toward zero" in done.stdout
    text = file.read_text()
    file.write_text(text.replace(">> 29 << 29", ">> 0"))
    done = run(file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_said_of_too_few_cases() -> None:
    cell = Exploration(
        Local("stored", wrong.Chopped()), CHECKS["forward"], OPERATORS["Tanh"], "float32",
        Tally("stored", "forward", "Tanh", "float32"), 5, lambda case: False,
    )  # fmt: skip
    assert not cell.faults(Seed(1))
    assert cell.roundings.total.ways["toward zero"].explains
    assert rounded_to_nearest("forward", cell.client, cell.roundings) is None
