"""One cause, one accusation: what is inaccurate is wrong in its values, and nothing else."""

from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.reference.operators import OPERATORS, elementwise
from tests.faults import inaccurate
from tests.faults.judging import findings
from tests.faults.score import Local, with_row
from tests.faults.wrong import Wrong
from tests.nightly import thinned

COUNT = 25
BY_VALUE = {"forward", "low_precision", "accuracy", "degenerate", "real"}
"""Checks that have nothing to say but that values are right, each on cases of its own."""


@pytest.mark.parametrize(
    ("backend", "operator", "character"),
    thinned(
        [
            (inaccurate.SlightlyOff, "Exp", "inaccuracy"),
            (inaccurate.AtItsBar, "Softmax", "inaccuracy"),
            (inaccurate.AnotherFunction, "Erf", "different function"),
            (inaccurate.ErfByPolynomial, "Erf", "inaccuracy"),
            (inaccurate.InElevenBits, "Softmax", "inaccuracy"),
        ],
        3,
    ),
)
def test_wrong_values_are_accused_of_being_wrong(
    backend: type[Wrong], operator: str, character: str
) -> None:
    found = findings(Local("inaccurate", backend()), OPERATORS[operator], count=COUNT)
    assert "forward" in found
    assert set(found) <= BY_VALUE, "\n\n".join(fault.message for fault in found.values())
    assert {fault.kind for fault in found.values()} == {"value"}
    assert found["forward"].character == character
    words = "an inaccuracy, as computing in" if character == "inaccuracy" else "a different"
    if backend is inaccurate.InElevenBits:  # of the two numbers that it shrinks to
        words = "right if inputs are rounded to float16 or TF32 first"
    assert words in found["forward"].message


@pytest.mark.parametrize("operator", ["Exp", "Conv"])
def test_what_is_rounded_to_a_narrower_format_is_one_cause(operator: str) -> None:
    """Where there are elements enough: of one or two it may be chance."""
    client = Local("fast", inaccurate.InBfloat16())
    shapes = {"Exp": [(4, 6)], "Conv": [(2, 3, 5, 5), (4, 3, 2, 2)]}[operator]
    for check, dtype in (("forward", "float64"), ("low_precision", "float16")):
        tensors = tuple(Tensor(shape, dtype) for shape in shapes)
        with pytest.raises(Fault) as caught:
            CHECKS[check].run(client, Case(OPERATORS[operator](), tensors))
        assert caught.value.cause == f"{dtype} rounded to bfloat16"
        assert ": rounded to bfloat16 on fast" in caught.value.headline


@pytest.mark.parametrize(
    ("operator", "function", "character", "words"),
    [
        ("HardSwish", lambda x: x * np.clip(x + 3, 0, 6) / 6, "infinite",
         "infinite, where a finite number is due"),
        ("Exp", lambda x: np.where(x > 50, np.nan, np.exp(x)), "NaN", "NaN, where a number"),
        ("Exp", lambda x: np.where(x == np.inf, 1e308, np.exp(x)), "finite",
         "finite, where an infinity is due"),
        ("Reciprocal", lambda x: 1 / (x + 0.0), "other infinity", "the other infinity is due"),
        ("Exp", lambda x: np.where(x > 709, np.inf, np.exp(x)), "infinite", "infinite, where"),
        ("Log", lambda x: np.where(np.abs(x - 1) < 1e-6, 0, np.log(x)), "different function",
         "which no rounding explains"),
    ],
)  # fmt: skip
def test_infinities_and_nan_are_called_so(
    operator: str, function: Any, character: str, words: str
) -> None:
    class Other(OPERATORS[operator]):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return np.asarray(function(x), x.dtype)

    def judge_all() -> None:
        client, check = with_row(OPERATORS[operator], Other), CHECKS["accuracy"]
        for case in check.every(OPERATORS[operator], "float64"):
            check.run(client, case)

    with np.errstate(all="ignore"), pytest.raises(Fault) as caught:
        judge_all()
    assert caught.value.character == character
    assert words in caught.value.message
    assert "inputs are rounded" not in caught.value.message


def test_memory_that_nothing_wrote_is_called_so() -> None:
    client = Local("hasty", inaccurate.LastUnwritten())
    fault = findings(client, OPERATORS["Neg"], ("forward",), COUNT)["forward"]
    assert fault.character == "unwritten"
    assert "memory that nothing wrote, which d5test fills with the byte 0x7f" in fault.message


@pytest.mark.parametrize("operator", ["Mul", "Div"])
def test_subnormal_numbers_that_are_read_as_zero_are_called_so(operator: str) -> None:
    client = Local("flushing", inaccurate.SubnormalAsZero())
    fault = findings(client, OPERATORS[operator], ("accuracy",), COUNT)["accuracy"]
    assert fault.character == "flushed"
    assert "right if subnormal numbers are read as zero; flushes=True in" in fault.message


def test_an_alpha_that_onnx_stores_in_32_bits_is_called_so() -> None:
    class Exact(elementwise.LeakyRelu):
        def forward(self, x: Any) -> Any:
            return np.where(x < 0, 0.01 * x, x)

    client, x = with_row(elementwise.LeakyRelu, Exact), Tensor((2, 3), "float64")
    with pytest.raises(Fault, match="rounded_attributes=True in the row says so"):
        CHECKS["forward"].run(client, Case(elementwise.LeakyRelu(), (x,)))
    with pytest.raises(Fault) as caught:
        CHECKS["forward"].run(client, Case(elementwise.LeakyRelu(alpha=0.5), (x,)))
    assert "attributes" not in caught.value.details


@pytest.mark.parametrize("operator", ["Gelu", "HardSwish", "Mish"])
def test_where_the_formula_is_nan_its_limit_is_right(operator: str) -> None:
    client = Local("limits", inaccurate.ZeroAtMinusInfinity())
    assert not findings(client, OPERATORS[operator], ("accuracy",), COUNT)


@pytest.mark.parametrize("check", ["no_caching", "layout", "gradient"])
def test_a_property_is_not_to_blame_for_a_call_that_is_wrong_when_repeated(check: str) -> None:
    client = Local("once", inaccurate.RightOnce())
    found = findings(client, OPERATORS["Neg"], (check,), COUNT)
    assert found[check].kind == "nondeterministic", found[check].message


@pytest.mark.parametrize(
    ("backend", "operator", "check", "kind"),
    [
        (inaccurate.OffAndCachedByIdentity, "MatMul", "no_caching", "cached"),
        (inaccurate.OffAndCachedByFingerprint, "MatMul", "no_caching", "cached"),
        (inaccurate.OffAndLayoutBlind, "MatMul", "layout", "layout"),
        (inaccurate.OffAndBatchDependent, "Conv", "batch", "batch"),
        (inaccurate.OffAndNanInvented, "MatMul", "special", "special"),
        (inaccurate.OffAndNanSwallowed, "MatMul", "special", "special"),
        (inaccurate.OffAndNondeterministic, "MatMul", "determinism", "nondeterministic"),
        (inaccurate.OffAndWrongGradients, "MatMul", "gradient", "gradient"),
        (inaccurate.OffAndWrongGradients, "MatMul", "numerical_gradient", "gradient"),
    ],
)
def test_what_is_broken_besides_is_still_named(
    backend: type[Wrong], operator: str, check: str, kind: str
) -> None:
    client = Local("inaccurate", backend())
    assert findings(client, OPERATORS[operator], ("forward",), COUNT)["forward"].kind == "value"
    found = findings(client, OPERATORS[operator], (check,), COUNT)
    assert found[check].kind == kind, found[check].message


def test_every_property_is_tried() -> None:
    values = BY_VALUE | {"gradient", "numerical_gradient", "forward_mode", "second_gradient"}
    values |= {"accuracy_gradient"}
    others = {"untouched", "invalid_arguments", "declared_dtypes", "compiled", "distribution"}
    others |= {"dropout", "integers", "integer_forms", "compiled_integers"}
    named = {"no_caching", "layout", "batch", "special", "determinism", "forms"}
    named |= {"layout_gradient", "special_gradient"}
    # at small sizes they ask what `forward` and `gradient` do
    large = {name for name in CHECKS if name.startswith("large_")}
    assert values | others | named | large == set(CHECKS)
