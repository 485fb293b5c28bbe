"""torch.nn.functional through the front door, function by function, with torch's own defaults."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import d5test
from d5test.case import FLOATS, Case, Tensor
from d5test.checks import Fault
from d5test.reference.operators import OPERATORS
from tests.front_door.own import WIDE, Known, Own, Table, require_accepted, rows, unlisted
from tests.nightly import thinned

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import torch.nn.functional as F

op: Any = type("op", (), dict(OPERATORS))
"""The operators by name: `op.Relu`."""
SIXTH = 1 / 6
EPSILON = {2.0**-52: ("float64",), 2.0**-23: ("float32", "float16", "bfloat16")}
"""What rms_norm adds by default: the spacing at 1 of the numbers in which it computes."""


def normalised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Over the last axis; parameters are expanded to it."""

    def call(x: Any, *parameters: Any) -> Any:
        shape = x.shape[-1:]
        return function(x, shape, *(None if p is None else p.expand(shape) for p in parameters))

    return call


def ranked(function: Callable[..., Any], rank: int, *arguments: Any) -> Callable[..., Any]:
    """A function of tensors of one rank."""

    def call(x: Any) -> Any:
        if x.ndim != rank:
            raise d5test.Unsupported(f"wants {rank} axes")
        return function(x, *arguments)

    return call


def without_indices(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch counts the indices within each plane, ONNX through the whole tensor."""
    return lambda x: function(x, 2)[0]


def clipped(x: Any, low: Any = None, high: Any = None) -> Any:
    if low is None or high is None or low > high:
        raise d5test.Unsupported("F.hardtanh has two bounds, in order")
    return F.hardtanh(x, low.item(), high.item())


def embedded(table: Any, index: Any) -> Any:
    if table.ndim != 2 or (index < 0).any():
        raise d5test.Unsupported("F.embedding has a matrix, and no negative index")
    return F.embedding(index, table)


def padded(x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    if axes is not None:
        raise d5test.Unsupported("F.pad has no axes")
    begin, end = pads.reshape(2, -1).tolist()
    sides = [side for pair in zip(begin[::-1], end[::-1], strict=True) for side in pair]
    return F.pad(x, sides) if value is None else F.pad(x, sides, value=value.item())


def linear(a: Any, b: Any, c: Any = None) -> Any:
    if c is not None and c.shape != b.shape[:1]:
        raise d5test.Unsupported("F.linear has a bias for each output")
    return F.linear(a, b, c)


def attended(q: Any, k: Any, v: Any, mask: Any = None, *cache: Any) -> Any:
    if cache or (mask is not None and (mask.ndim < 2 or mask.shape[-1] != k.shape[2])):
        raise d5test.Unsupported("no cache, and a mask for all keys")
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=grouped)


def sloped(x: Any, slope: Any) -> Any:
    channels = (x.shape[1], *(1 for _ in x.shape[2:])) if x.ndim > 1 else (1,)
    if slope.shape not in (channels, (1,)):
        raise d5test.Unsupported("F.prelu has one slope, or one a channel")
    return F.prelu(x, slope.reshape(-1))


def scored(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of labels, whose weights are no input to be differentiated."""

    def call(x: Any, labels: Any, weight: Any = None) -> Any:
        return function(x, labels, None if weight is None else weight.detach())

    return call


def running(x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
    return F.batch_norm(x, mean.detach(), var.detach(), scale, b)


def training(x: Any, scale: Any, b: Any, *_: Any) -> Any:
    return F.batch_norm(x, None, None, scale, b, training=True)


LINEAR = Known(
    "documented: the identity where x is above 20, where ln(1 + e^x) is 2e-9 more",
    "forward",
    Case(op.Softplus(), (Tensor((1,), "float64", data=(20.5,)),)),
)
TABLE: Table = {
    "relu": Own(F.relu, op.Relu()),
    "sigmoid": Own(F.sigmoid, op.Sigmoid()),
    "tanh": Own(F.tanh, op.Tanh()),
    "mish": Own(F.mish, op.Mish()),
    "hardswish": Own(F.hardswish, op.HardSwish()),
    "softplus": Own(F.softplus, op.Softplus(), known={"float64": LINEAR}),
    "gelu": Own(F.gelu, op.Gelu()),
    "gelu tanh": Own(partial(F.gelu, approximate="tanh"), op.Gelu(approximate="tanh")),
    "elu": Own(F.elu, op.Elu()),
    "celu": Own(F.celu, op.Celu()),
    "selu": Own(F.selu, op.Selu()),
    "leaky_relu": Own(F.leaky_relu, op.LeakyRelu()),
    "hardsigmoid": Own(F.hardsigmoid, op.HardSigmoid(alpha=SIXTH)),
    "hardtanh": Own(clipped, op.Clip(), examples=40),
    "threshold": Own(
        partial(F.threshold, threshold=0.1, value=0), op.ThresholdedRelu(alpha=0.1)
    ),
    "prelu": Own(sloped, op.PRelu()),
    "softmax": Own(partial(F.softmax, dim=-1), op.Softmax()),
    "log_softmax": Own(partial(F.log_softmax, dim=-1), op.LogSoftmax()),
    "layer_norm": Own(normalised(F.layer_norm), op.LayerNormalization()),
    "rms_norm": tuple(
        Own(normalised(F.rms_norm), op.RMSNormalization(epsilon=epsilon), dtypes=dtypes)
        for epsilon, dtypes in EPSILON.items()
    ),
    "group_norm": Own(
        lambda x, *parameters: F.group_norm(x, 3, *parameters),
        op.GroupNormalization(num_groups=3),
    ),
    "instance_norm": Own(
        lambda x, *parameters: F.instance_norm(x, None, None, *parameters),
        op.InstanceNormalization(),
    ),
    "batch_norm": Own(running, op.BatchNormalization()),
    "batch_norm training": Own(training, op.BatchNormalization(training_mode=1)),
    "local_response_norm": Own(partial(F.local_response_norm, size=3), op.LRN(size=3)),
    "linear": Own(linear, op.Gemm(transB=1)),
    "embedding": Own(embedded, op.Gather()),
    "pad": Own(padded, op.Pad()),
    "scaled_dot_product_attention": Own(attended, op.Attention(), outputs=1),
    "cross_entropy": Own(scored(F.cross_entropy), op.SoftmaxCrossEntropyLoss(ignore_index=-100)),
    "nll_loss": Own(scored(F.nll_loss), op.NegativeLogLikelihoodLoss(ignore_index=-100)),
    "conv1d": Own(F.conv1d, op.Conv(kernel_shape=(3,))),
    "conv2d": Own(F.conv2d, op.Conv(kernel_shape=(3, 2))),
    "conv3d": Own(F.conv3d, op.Conv(kernel_shape=(1, 2, 2))),
    "conv_transpose1d": Own(F.conv_transpose1d, op.ConvTranspose(kernel_shape=(3,))),
    "conv_transpose2d": Own(F.conv_transpose2d, op.ConvTranspose(kernel_shape=(3, 2))),
    "conv_transpose3d": Own(F.conv_transpose3d, op.ConvTranspose(kernel_shape=(1, 2, 2))),
    **{
        f"{kind}_pool{n}d": Own(
            partial(getattr(F, f"{kind}_pool{n}d"), kernel_size=2),
            operator(kernel_shape=(2,) * n, strides=(2,) * n),
            dtypes=WIDE if (kind, n) == ("avg", 3) else FLOATS,
        )
        for n in (1, 2, 3)
        for kind, operator in (("max", op.MaxPool), ("avg", op.AveragePool))
    },
    **{
        f"max_pool{n}d_with_indices": Own(
            without_indices(getattr(F, f"max_pool{n}d_with_indices")),
            op.MaxPool(kernel_shape=(2,) * n, strides=(2,) * n),
        )
        for n in (1, 2, 3)
    },
    **{
        f"adaptive_avg_pool{n}d": Own(
            ranked(getattr(F, f"adaptive_avg_pool{n}d"), n + 2, 1), op.GlobalAveragePool()
        )
        for n in (1, 2, 3)
    },
}  # fmt: skip

TENSORS: Table = {
    "exp": Own(torch.exp, op.Exp()),
    "log": Own(torch.log, op.Log()),
    "sqrt": Own(torch.sqrt, op.Sqrt()),
    "erf": Own(torch.erf, op.Erf(), dtypes=WIDE),
    "abs": Own(torch.abs, op.Abs()),
    "neg": Own(torch.neg, op.Neg()),
    "reciprocal": Own(torch.reciprocal, op.Reciprocal()),
    "add": Own(torch.add, op.Add()),
    "sub": Own(torch.sub, op.Sub()),
    "mul": Own(torch.mul, op.Mul()),
    "div": Own(torch.div, op.Div()),
    "pow": Own(torch.pow, op.Pow()),
    "matmul": Own(torch.matmul, op.MatMul()),
    "where": Own(torch.where, op.Where()),
    "cat": Own(lambda *xs: torch.cat(xs, -1), op.Concat(axis=-1)),
    "einsum": Own(
        lambda *xs: torch.einsum("bij,bjk->bik", *xs), op.Einsum(equation="bij,bjk->bik")
    ),
}
"""Functions of torch itself, a few."""

IN_PLACE: Table = {
    "relu_": Own(F.relu_, op.Relu()),
    "elu_": Own(F.elu_, op.Elu()),
    "celu_": Own(F.celu_, op.Celu()),
    "selu_": Own(F.selu_, op.Selu()),
    "leaky_relu_": Own(F.leaky_relu_, op.LeakyRelu()),
    "threshold_": Own(
        partial(F.threshold_, threshold=0.1, value=0), op.ThresholdedRelu(alpha=0.1)
    ),
}
"""Functions that write into their input, as their name says."""

OTHERS = {
    "d5test has no operator for it": """
        adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d
        adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices
        affine_grid bilinear binary_cross_entropy binary_cross_entropy_with_logits
        channel_shuffle native_channel_shuffle conv_tbc cosine_embedding_loss cosine_similarity
        ctc_loss embedding_bag fold unfold gaussian_nll_loss glu grid_sample hardshrink
        hinge_embedding_loss huber_loss interpolate kl_div l1_loss linear_cross_entropy logsigmoid
        lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_unpool1d max_unpool2d max_unpool3d
        mse_loss multi_head_attention_forward multi_margin_loss multilabel_margin_loss
        multilabel_soft_margin_loss normalize one_hot pairwise_distance pdist pixel_shuffle
        pixel_unshuffle poisson_nll_loss silu smooth_l1_loss soft_margin_loss softmin softshrink
        softsign tanhshrink triplet_margin_loss triplet_margin_with_distance_loss""",
    "Clip with bounds of its own, where ONNX's are inputs": "relu6 hardtanh_",
    "random": """
        alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout
        fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices gumbel_softmax rrelu rrelu_""",
    "for 8 bits, or for matrices in groups": "grouped_mm scaled_grouped_mm scaled_mm",
    "a deprecated name of interpolate": "upsample upsample_bilinear upsample_nearest",
    "torch's own machinery": """
        Optional assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function
        has_torch_function_unary has_torch_function_variadic""",
}


def test_every_function_is_in_the_table_or_has_a_reason() -> None:
    forgotten, gone = unlisted(F, {**TABLE, **IN_PLACE}, OTHERS)
    assert not forgotten, "list these, with the operator that they are or with a reason"
    assert not gone, "torch has no such function any more"


@pytest.mark.parametrize(("own", "dtype"), thinned(rows(TABLE, FLOATS) + rows(TENSORS, FLOATS), 5))
def test_an_own_function_is_accepted(own: Own, dtype: str) -> None:
    require_accepted(own, dtype, "torch")


@pytest.mark.parametrize(("own", "dtype"), rows(IN_PLACE))
def test_one_that_writes_into_its_input_is_refused(own: Own, dtype: str) -> None:
    with pytest.raises(Fault, match=r"which +input 0, element") as caught:
        d5test.check(own.call, like=own.like, dtypes=dtype, backend="torch", examples=6)
    assert caught.value.kind == "mutated"
