"""jax.nn through the front door, function by function, with jax's own defaults."""

import importlib.util
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import d5test
from d5test.case import Case, Tensor
from d5test.reference.operators import OPERATORS
from tests.front_door.own import Known, Own, Table, require_accepted, rows, unlisted
from tests.nightly import thinned

if importlib.util.find_spec("jax") is None:
    pytest.skip("jax is not installed", allow_module_level=True)

from jax import nn
from jax import numpy as jnp

op: Any = type("op", (), dict(OPERATORS))
"""The operators by name: `op.Relu`."""


def attended(q: Any, k: Any, v: Any, *others: Any) -> Any:
    """Heads stand before the length in ONNX, behind it in jax."""
    more = q.shape[-1] - v.shape[-1]
    if others or more < 0:
        raise d5test.Unsupported("no mask, no cache, and values not longer than keys")
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    v = jnp.pad(v, [(0, 0), (0, 0), (0, 0), (0, more)])
    return nn.dot_product_attention(q, k, v).swapaxes(1, 2)[..., : q.shape[-1] - more]


def summed(x: Any, axes: Any = None) -> Any:
    return nn.logsumexp(x, None if axes is None else tuple(axes.tolist()) or None, keepdims=True)


SINGLE = Known(
    "documented: the softmax of dot_product_attention is computed in float32",
    "forward",
    Case(
        op.Attention(),
        (Tensor((1, 1, 2, 4), "float64"), *[Tensor((1, 1, 3, 4), "float64")] * 2),
    ),
)
LOGADDEXP = Known(
    "logaddexp is differentiated as exp(x - out): 4 to 5 bits are lost where |x| is 8 to 36",
    "gradient",
    Case(op.Softplus(), (Tensor((2,), "float64", ("heavy",)),), seed=61),
)
SINGLE_LOGADDEXP = replace(LOGADDEXP, case=Case(op.Softplus(), (Tensor((1,), data=(8.33538,)),)))
TABLE: Table = {
    "relu": Own(nn.relu, op.Relu()),
    "sigmoid": Own(nn.sigmoid, op.Sigmoid()),
    "tanh": Own(nn.tanh, op.Tanh()),
    "mish": Own(nn.mish, op.Mish()),
    "hard_swish": Own(nn.hard_swish, op.HardSwish()),
    "hard_silu": Own(nn.hard_silu, op.HardSwish()),
    "softplus": Own(
        nn.softplus, op.Softplus(), known={"float64": LOGADDEXP, "float32": SINGLE_LOGADDEXP}
    ),
    "gelu": Own(nn.gelu, op.Gelu(approximate="tanh")),
    "gelu exact": Own(partial(nn.gelu, approximate=False), op.Gelu()),
    "elu": Own(nn.elu, op.Elu()),
    "celu": Own(nn.celu, op.Celu()),
    "selu": Own(nn.selu, op.Selu()),
    "leaky_relu": Own(nn.leaky_relu, op.LeakyRelu()),
    "hard_sigmoid": Own(nn.hard_sigmoid, op.HardSigmoid(alpha=1 / 6)),
    "softmax": Own(nn.softmax, op.Softmax()),
    "log_softmax": Own(nn.log_softmax, op.LogSoftmax()),
    "logsumexp": Own(summed, op.ReduceLogSumExp()),
    "dot_product_attention": Own(
        attended, op.Attention(), outputs=1, examples=3, known={"float64": SINGLE}
    ),
}
OTHERS = {
    "d5test has no operator for it": """
        glu identity log1mexp log_sigmoid logmeanexp one_hot silu soft_sign sparse_plus
        sparse_sigmoid squareplus standardize swish""",
    "Clip with bounds of its own, where ONNX's are inputs": "hard_tanh relu6",
    "for 8 bits": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
}


def test_every_function_is_in_the_table_or_has_a_reason() -> None:
    forgotten, gone = unlisted(nn, TABLE, OTHERS)
    assert not forgotten, "list these, with the operator that they are or with a reason"
    assert not gone, "jax has no such function any more"


@pytest.mark.parametrize(("own", "dtype"), thinned(rows(TABLE, nightly=("float64",))))
def test_an_own_function_is_accepted(own: Own, dtype: str) -> None:
    require_accepted(own, dtype, "jax")
