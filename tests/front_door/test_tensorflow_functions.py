"""tf.nn through the front door, function by function, with TensorFlow's own defaults."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import d5test
from d5test.case import FLOATS, Case, Tensor
from d5test.reference.operators import OPERATORS
from tests.front_door.own import Known, Own, Table, require_accepted, rows, unlisted
from tests.nightly import thinned

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

import tensorflow as tf

op: Any = type("op", (), dict(OPERATORS))
"""The operators by name: `op.Relu`."""
nn = tf.nn


def last(x: Any) -> Any:
    """Channels behind all other axes, where TensorFlow has them."""
    return tf.transpose(x, (0, *range(2, x.ndim), 1))


def second(x: Any) -> Any:
    """Channels as the second axis, where ONNX has them."""
    return tf.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def channelwise(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """A function of x with its channels last."""
    return lambda x: second(function(last(x), **fixed))


def convolved(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """A convolution of x and w in ONNX's order of axes, and its bias by tf.nn.bias_add."""

    def call(x: Any, w: Any, b: Any = None) -> Any:
        w = tf.transpose(w, (*range(2, w.ndim), 1, 0))
        y = function(last(x), w, padding="VALID", **fixed)
        return second(y if b is None else nn.bias_add(y, b))

    return call


def transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a convolution by its input."""

    def call(x: Any, w: Any, b: Any = None) -> Any:
        sizes = [n + k - 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
        shape = (x.shape[0], *sizes, w.shape[1])
        y = function(last(x), tf.transpose(w, (*range(2, w.ndim), 1, 0)), shape, 1, "VALID")
        return second(y if b is None else nn.bias_add(y, b))

    return call


def responding(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any) -> Any:
        if x.ndim != 4:
            raise d5test.Unsupported("wants images")
        return second(function(last(x)))

    return call


def normalised(x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
    parameters = (mean, var, b, scale)
    return second(nn.batch_normalization(last(x), *parameters, variance_epsilon=1e-5))


def labelled(scores: Any, labels: Any, weights: Any = None) -> Any:
    if weights is not None:
        raise d5test.Unsupported("no weights")
    return nn.sparse_softmax_cross_entropy_with_logits(labels, last(scores))


def onehot(scores: Any, labels: Any, weights: Any = None) -> Any:
    if weights is not None:
        raise d5test.Unsupported("no weights")
    targets = tf.one_hot(labels, scores.shape[1], dtype=scores.dtype)
    return nn.softmax_cross_entropy_with_logits(targets, last(scores))


def embedded(table: Any, index: Any) -> Any:
    if tf.reduce_any(index < 0):
        raise d5test.Unsupported("tf.nn.embedding_lookup has no negative index")
    return nn.embedding_lookup(table, index)


CONSTANTS = "rounds its constants to float32 also in float64: 1e-8 off"
GELU = Case(op.Gelu(), (Tensor((1,), "float64", data=(-0.5,)),))
TANH = Case(op.Gelu(approximate="tanh"), GELU.inputs)
RUNNING = Known(
    "its sums over channels are updated in float16",
    "low_precision",
    Case(op.LRN(size=11, alpha=11.0, beta=0.5), (Tensor((2, 2049, 2, 3), "float16"),)),
)
EACH = {
    dtype: Known(
        "the gradient of max_pool3d goes whole to each of several equal maxima",
        check,
        Case(
            op.MaxPool(kernel_shape=(2, 2, 2), strides=(2, 2, 2)),
            (Tensor((1, 1, 2, 2, 2), dtype, values=("ties",)),),
        ),
    )
    for dtype, check in (("float32", "gradient"), ("bfloat16", "low_precision"))
}
TABLE: Table = {
    "relu": Own(nn.relu, op.Relu()),
    "sigmoid": Own(nn.sigmoid, op.Sigmoid()),
    "tanh": Own(nn.tanh, op.Tanh()),
    "softplus": Own(nn.softplus, op.Softplus()),
    "elu": Own(nn.elu, op.Elu()),
    "selu": Own(nn.selu, op.Selu()),
    "leaky_relu": Own(nn.leaky_relu, op.LeakyRelu(alpha=0.2)),
    "gelu": Own(nn.gelu, op.Gelu(), known={"float64": Known(CONSTANTS, "forward", GELU)}),
    "gelu tanh": Own(
        partial(nn.gelu, approximate=True),
        op.Gelu(approximate="tanh"),
        known={"float64": Known(CONSTANTS, "forward", TANH)},
    ),
    "softmax": Own(nn.softmax, op.Softmax()),
    "log_softmax": Own(nn.log_softmax, op.LogSoftmax()),
    "batch_normalization": Own(normalised, op.BatchNormalization(), outputs=1),
    **{
        name: Own(
            responding(getattr(nn, name)),
            op.LRN(size=11, alpha=11.0, beta=0.5),
            dtypes=("float32", "float16"),
            known={"float16": RUNNING},
            examples=12,
        )
        for name in ("local_response_normalization", "lrn")
    },
    "sparse_softmax_cross_entropy_with_logits": Own(
        labelled, op.SoftmaxCrossEntropyLoss(reduction="none"), outputs=1
    ),
    "softmax_cross_entropy_with_logits": Own(
        onehot, op.SoftmaxCrossEntropyLoss(reduction="none"), outputs=1
    ),
    "embedding_lookup": Own(embedded, op.Gather()),
    "convolution": Own(convolved(nn.convolution), op.Conv(kernel_shape=(3, 2))),
    "conv1d": Own(convolved(nn.conv1d, stride=1), op.Conv(kernel_shape=(3,))),
    "conv2d": Own(convolved(nn.conv2d, strides=1), op.Conv(kernel_shape=(3, 2))),
    "conv3d": Own(convolved(nn.conv3d, strides=(1,) * 5), op.Conv(kernel_shape=(1, 2, 2))),
    "atrous_conv2d": Own(
        convolved(nn.atrous_conv2d, rate=2), op.Conv(kernel_shape=(2, 3), dilations=(2, 2))
    ),
    "conv1d_transpose": Own(transposed(nn.conv1d_transpose), op.ConvTranspose(kernel_shape=(3,))),
    "conv2d_transpose": Own(
        transposed(nn.conv2d_transpose), op.ConvTranspose(kernel_shape=(3, 2))
    ),
    "conv3d_transpose": Own(
        transposed(nn.conv3d_transpose), op.ConvTranspose(kernel_shape=(1, 2, 2))
    ),
    "conv_transpose": Own(transposed(nn.conv_transpose), op.ConvTranspose(kernel_shape=(2, 3))),
    **{
        f"{kind}_pool{n}d": Own(
            channelwise(getattr(nn, f"{kind}_pool{n}d"), ksize=2, strides=2, padding="VALID"),
            operator(kernel_shape=(2,) * n, strides=(2,) * n),
            dtypes=("float32", "bfloat16") if n == 3 else FLOATS,
            known=EACH if (kind, n) == ("max", 3) else {},
        )
        for n in (1, 2, 3)
        for kind, operator in (("max", op.MaxPool), ("avg", op.AveragePool))
    },
    "max_pool": Own(
        channelwise(nn.max_pool, ksize=2, strides=2, padding="VALID"),
        op.MaxPool(kernel_shape=(2, 2), strides=(2, 2)),
    ),
    "avg_pool": Own(
        channelwise(nn.avg_pool, ksize=2, strides=2, padding="VALID"),
        op.AveragePool(kernel_shape=(2, 2), strides=(2, 2)),
    ),
    "pool": Own(
        channelwise(nn.pool, window_shape=(2, 2), pooling_type="AVG"),
        op.AveragePool(kernel_shape=(2, 2)),
    ),
    "max_pool_with_argmax": Own(
        lambda x: second(nn.max_pool_with_argmax(last(x), 2, 2, "VALID")[0]),
        op.MaxPool(kernel_shape=(2, 2), strides=(2, 2)),
    ),
}
OTHERS = {
    "d5test has no operator for it": """
        approx_max_k approx_min_k atrous_conv2d_transpose collapse_repeated crelu
        ctc_beam_search_decoder ctc_greedy_decoder ctc_loss ctc_unique_labels depth_to_space
        dilation2d embedding_lookup_sparse erosion2d in_top_k isotonic_regression l2_loss
        l2_normalize log_poisson_loss moments normalize_moments safe_embedding_lookup_sparse
        separable_conv2d sigmoid_cross_entropy_with_logits silu softsign space_to_batch
        space_to_depth sufficient_statistics swish top_k weighted_cross_entropy_with_logits
        weighted_moments with_space_to_batch zero_fraction""",
    "Clip with bounds of its own, where ONNX's are inputs": "relu6",
    "Conv with one channel a group: groups that are drawn have more": "depthwise_conv2d",
    "part of a convolution above, or of its gradient": """
        bias_add depthwise_conv2d_backprop_filter depthwise_conv2d_backprop_input""",
    "the older order of batch_normalization's arguments": "batch_norm_with_global_normalization",
    "random": """
        all_candidate_sampler compute_accidental_hits dropout fixed_unigram_candidate_sampler
        fractional_avg_pool fractional_max_pool learned_unigram_candidate_sampler nce_loss
        sampled_softmax_loss""",
    "divides a loss by the number of replicas": "compute_average_loss scale_regularization_loss",
}


def test_every_function_is_in_the_table_or_has_a_reason() -> None:
    forgotten, gone = unlisted(nn, TABLE, OTHERS)
    assert not forgotten, "list these, with the operator that they are or with a reason"
    assert not gone, "TensorFlow has no such function any more"


@pytest.mark.parametrize(("own", "dtype"), thinned(rows(TABLE, FLOATS), 5))
def test_an_own_function_is_accepted(own: Own, dtype: str) -> None:
    require_accepted(own, dtype, "tensorflow")
