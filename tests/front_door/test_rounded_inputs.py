"""Inputs that are rounded first, as in TF32 and bfloat16, are told from fewer bits everywhere."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import d5test
from d5test.numerics.perturbed import round_to
from d5test.outcome.fault import Fault
from d5test.reference.operators import Gemm, MatMul, Softmax


def bfloat16(x: Any) -> Any:
    return x.astype(ml_dtypes.bfloat16).astype(x.dtype)


def tf32(x: Any) -> Any:
    return round_to(x.astype(np.float64), 11).astype(x.dtype)


def fault(function: Any, like: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        d5test.check(function, like=like, dtypes=("float32",), examples=5)
    return caught.value


@pytest.mark.parametrize(("rounded", "name"), [(bfloat16, "bfloat16"), (tf32, "float16 or TF32")])
def test_the_format_of_the_factors_is_named(rounded: Any, name: str) -> None:
    product = fault(lambda a, b: np.asarray(rounded(a) @ rounded(b)), MatMul())
    assert f"the result is wrong: inputs are rounded to {name} on" in product.headline
    assert f"right if inputs are rounded to {name} first" in product.message
    added = fault(lambda a, b, c=0: np.asarray(rounded(a) @ rounded(b)) + c, Gemm())
    assert added.cause == product.cause == f"inputs in float32 rounded to {name}"


def test_fewer_bits_on_the_way_are_not() -> None:
    def softmax(x: Any) -> Any:
        y = np.exp(x - x.max(-1, keepdims=True))
        return tf32(y / y.sum(-1, keepdims=True)) * np.float32(1 + 2**-20)

    assert "inputs are rounded" not in fault(softmax, Softmax()).message
