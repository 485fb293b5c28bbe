"""An attribute is known to the 32 bits in which ONNX stores it, and to no bit less."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5test.case import Case, Operator
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import corners, double, forward_bounds, gradient_bounds, half_ulp
from d5test.numerics.judgement import judge
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases

SINGLE = float(np.float32(1e-5))
OPEN = tuple(
    cls(**{f.name: 2 for f in fields(cls) if f.name in ("num_groups", "size")})
    for cls in OPERATORS.values()
    if any(isinstance(f.default, float) and half_ulp(f.default) for f in fields(cls))
)
"""Operators with ONNX's defaults, of which one at least is no short decimal."""


@pytest.mark.parametrize("number", [1.0, 0.75, 0.5, 0.0625, 0.0, -1.25, 2.0, 2.0**20])
def test_a_short_binary_number_is_exact(number: float) -> None:
    assert half_ulp(number) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [(1e-5, SINGLE), (0.01, np.float32(0.01)), (1 / 6, np.float32(1 / 6)),
     (1.6732632423543772, np.float32(1.6732632423543772)), (-0.3, np.float32(-0.3))],
)  # fmt: skip
def test_either_of_two_that_onnx_stores_alike_reaches_the_other(one: float, other: Any) -> None:
    apart = abs(one - float(other))
    assert 0 < apart <= half_ulp(one)
    assert half_ulp(one) == half_ulp(float(other)) == np.spacing(np.abs(np.float32(one))) / 2


def test_corners_are_all_combinations() -> None:
    assert not list(corners(OPERATORS["Elu"]()))
    assert not list(corners(OPERATORS["Relu"]()))
    assert len(list(corners(OPERATORS["LayerNormalization"]()))) == 2
    found = {(op.alpha, op.gamma) for op in corners(OPERATORS["Selu"]())}  # type: ignore[attr-defined]
    assert len(found) == 4


def test_the_operators_with_open_defaults_are_all_here() -> None:
    assert [op.name for op in OPEN] == [
        "LeakyRelu", "HardSigmoid", "Selu", "LRN", "BatchNormalization", "GroupNormalization",
        "InstanceNormalization", "LayerNormalization", "RMSNormalization", "AdagradUpdate",
        "AdamUpdate",
    ]  # fmt: skip


def results(case: Case, op: Operator) -> tuple[Any, ...]:
    """Outputs and any gradients in float64, as a function with the attributes of `op` has them."""
    inputs = double(case.arrays())
    with np.errstate(all="ignore"):
        outputs = op(*inputs)
        if not op.differentiable:
            return outputs
        return *outputs, *op.vjp(case.upstream(outputs), inputs, outputs)


def ratio(case: Case, computed: tuple[Any, ...], *, rounded_attributes: bool) -> float:
    (arithmetic,) = classes("float64", rounded_attributes=rounded_attributes)
    arrays = case.arrays()
    bounds = forward_bounds(case.op, arrays, arithmetic)
    grads = case.upstream(tuple(b.value for b in bounds if b is not None))
    if case.op.differentiable:
        bounds = (*bounds, *gradient_bounds(case.op, arrays, grads, arithmetic))
    return judge(bounds, computed).ratio


@pytest.mark.parametrize("op", OPEN, ids=lambda op: op.name)
@settings(max_examples=20)
@given(data=st.data())
def test_whatever_onnx_stores_alike_is_accepted(op: Operator, data: st.DataObject) -> None:
    case = data.draw(cases(op, "float64"))
    inside = {
        f.name: value + data.draw(st.floats(-1, 1)) * half_ulp(value)
        for f in fields(op)
        if isinstance(value := getattr(op, f.name), float)
    }
    computed = results(case, op.with_(**inside))
    assert ratio(case, computed, rounded_attributes=True) <= 1


SHOWING: dict[tuple[str, str], dict[str, Any]] = {
    ("BatchNormalization", "momentum"): {"training_mode": 1},
    ("AdamUpdate", "epsilon"): {"alpha": 0.875, "beta": 0.75},
}
"""With what an attribute shows: Adam's epsilon is small beside what 1 - 0.999 leaves open."""

EACH = [
    (op.with_(**SHOWING.get((op.name, f.name), {})), f.name)
    for op in OPEN
    for f in fields(op)
    if isinstance(f.default, float) and half_ulp(f.default)
]
"""Each open attribute, where it shows."""


@pytest.mark.parametrize(("op", "name"), EACH, ids=[f"{op.name}-{name}" for op, name in EACH])
def test_four_half_ulps_are_another_attribute(op: Operator, name: str) -> None:
    """And a single one is too much where the function is handed the very attribute."""
    value = getattr(op, name)
    beyond, within = (op.with_(**{name: value + n * half_ulp(value)}) for n in (4, 1))
    seen = []

    @settings(max_examples=30)
    @given(case=cases(op, "float64"))
    def collect(case: Case) -> None:
        widened = ratio(case, results(case, beyond), rounded_attributes=True)
        strict = ratio(case, results(case, within), rounded_attributes=False)
        seen.append((widened, strict))

    collect()
    widened, strict = (max(each) for each in zip(*seen, strict=True))
    assert 1.5 < widened < 5  # Selu's bar is for both of its attributes
    assert strict > 100
