"""What frameworks document is judged: by rows that name their source, and that can fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, Reference
from d5test.case import Case, Operator, Tensor
from d5test.checks import CHECKS, Fault
from d5test.reference.formulas import FORMULAS
from d5test.reference.operators import OPERATORS
from tests.backends.contracts import BACKENDS, OTHERS, PAGE, differences, page, rows_of
from tests.faults.score import Local

SAMPLES = {
    "even shares": (OPERATORS["ReduceMax"](), (Tensor((3, 5), values=("ties",)), None)),
    "first of equal": (
        OPERATORS["ReduceMax"](),
        (Tensor((3, 5), values=("ties",)), Tensor((1,), "int64", data=(1,))),
    ),
    "any of equal": (OPERATORS["ArgMax"](axis=1), (Tensor((3, 5), values=("ties",)),)),
    "constants in 64 bits": (OPERATORS["Selu"](), (Tensor((3, 5), "float64"),)),
    "half away from zero": (
        OPERATORS["Round"](),
        (Tensor((7,), data=(0.5, -0.5, 1.5, -2.5, 0.49999997, 1.0, -0.2)),),
    ),
    "centred variance": (
        OPERATORS["GroupNormalization"](num_groups=1),
        (Tensor((2, 4, 8), values=("offset",)), Tensor((4,)), Tensor((4,))),
    ),
    "linear above 2": (OPERATORS["Softplus"](), (Tensor((40,), values=("scaled", 2)),)),
    "indices of the plane": (
        OPERATORS["MaxPool"](kernel_shape=(2, 2)),
        (Tensor((2, 3, 5, 4)),),
    ),
    "0.54 and 0.46": (OPERATORS["HammingWindow"](), (Tensor((), "int64", data=(5,)),)),
    "maximum of interpolated": (
        OPERATORS["RoiAlign"](mode="max", output_height=2, sampling_ratio=2),
        (
            Tensor((2, 3, 6, 5)),
            Tensor((2, 4), data=(0.2, 0.4, 3.7, 4.1, 1.1, 0.3, 4.2, 3.3)),
            Tensor((2,), "int64", data=(1, 0)),
        ),
    ),
    "unbiased running variance": (
        OPERATORS["BatchNormalization"](training_mode=1),
        (Tensor((4, 3, 5)), *(Tensor((3,)),) * 4),
    ),
}
"""A case that tells each documented formula from ONNX's."""


class LastOfEqual(OPERATORS["ArgMax"]):  # type: ignore[misc,name-defined]
    """ArgMax that returns the last of equal maxima."""

    def chosen(self, x: Any) -> Any:
        return x.shape[self.axis] - 1 - super().chosen(np.flip(x, self.axis))


def local(operator: type[Operator], make: Any, **row: Any) -> Local:
    """NumPy with one row: `make` in place of the operator's class, under a contract."""
    name = operator.__name__
    rows = {**Numpy.rows, name: replace(Numpy.rows[name], call=Reference(make), **row)}
    return Local("contract", type("Contract", (Numpy,), {"rows": rows})())


def documented() -> set[str]:
    """The formulas of all rows that name one."""
    rows = [row for framework in BACKENDS for _, _, row in rows_of(framework)]
    return {row.contract for row in rows if row.contract}


def judge(client: Local, case: Case) -> None:
    for check in ("forward", "gradient") if case.op.differentiable else ("forward",):
        CHECKS[check].run(client, case)


def test_the_page_is_made_from_the_rows() -> None:
    assert Path(PAGE).read_text() == page()


def test_every_difference_has_a_source_and_a_source_a_difference() -> None:
    for framework in BACKENDS:
        for operator, call, row in rows_of(framework):
            assert bool(row.source) == any(differences(operator, row)), (operator, call)
            assert row.source.startswith("https://"), (operator, call)


def test_every_documented_formula_has_a_sample() -> None:
    assert documented() | set(OTHERS) == set(SAMPLES)


@pytest.mark.parametrize("contract", SAMPLES)
def test_who_keeps_it_is_right_and_who_does_as_onnx_is_wrong(contract: str) -> None:
    op, inputs = SAMPLES[contract]
    operator, case = type(op), Case(op, inputs, seed=3)
    judge(local(operator, FORMULAS[contract][operator], contract=contract), case)
    judge(local(operator, operator), case)  # without the contract
    if contract == "any of equal":  # which holds ONNX's own, too
        judge(local(operator, LastOfEqual, contract=contract), case)
        with pytest.raises(Fault):
            judge(local(operator, LastOfEqual), case)
        return
    # of equal maxima ONNX's own reference takes the first
    other = FORMULAS["even shares"][operator] if contract == "first of equal" else operator
    with pytest.raises(Fault):
        judge(local(operator, other, contract=contract), case)


def reading(x: Any, indices: Any, axis: int, beyond: Any) -> Any:
    n = x.shape[axis]
    y = np.take(x, np.clip(indices, -n, n - 1), axis).copy()
    outside = (indices < -n) | (indices >= n)
    y[(slice(None),) * axis + (outside,)] = beyond
    return y


@pytest.mark.parametrize(
    ("beyond", "out_of_range", "right"),
    [
        (np.nan, ("nan",), True),
        (np.nan, (), True),
        (0.0, ("raises", "zero"), True),
        (0.0, ("nan",), False),
        (np.nan, ("raises", "zero"), False),
        (41.5, (), False),
    ],
)
def test_of_an_index_out_of_range_what_is_documented_is_due(
    beyond: float, out_of_range: tuple[str, ...], right: bool
) -> None:
    row = Row(lambda op, x, i: reading(x, i, op.axis % x.ndim, beyond), out_of_range=out_of_range)
    backend = type("Reading", (Numpy,), {"rows": {**Numpy.rows, "Gather": row}})
    client = Local("reading", backend())
    indices = Tensor((2, 2), "int64", data=(0, 1, -1, 2))
    for seed in range(6):
        case = Case(OPERATORS["Gather"](axis=1), (Tensor((2, 3)), indices), seed=seed)
        if right:
            assert CHECKS["invalid_arguments"].run(client, case).right
            continue
        with pytest.raises(Fault, match=r"the index .* is accepted"):
            CHECKS["invalid_arguments"].run(client, case)


def test_who_raises_where_nan_is_documented_is_wrong() -> None:
    client = local(OPERATORS["Gather"], OPERATORS["Gather"], out_of_range=("nan",))
    case = Case(OPERATORS["Gather"](), (Tensor((3, 2)), Tensor((2,), "int64", data=(0, 1))))
    with pytest.raises(Fault, match="an index out of range raises"):
        CHECKS["invalid_arguments"].run(client, case)
