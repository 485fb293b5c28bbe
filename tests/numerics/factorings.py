"""Other ways to write the references' formulas, which honest arithmetic may choose as well.

Each takes the operator and its inputs (`FORWARDS`), or as a `backward` does (`BACKWARDS`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from d5test.reference.operators.broadcasting import along_channels, unbroadcast
from d5test.reference.operators.reductions import Loss
from d5test.reference.operators.windows import (
    as_columns,
    as_filters,
    from_columns,
)

Function = Callable[..., Any]


# alpha and beta of Gemm: on the product, on either factor


def gemm(place: str) -> Function:
    def forward(op: Any, a: Any, b: Any, c: Any = None) -> Any:
        a, b = a.T if op.transA else a, b.T if op.transB else b
        if place == "product":
            product = op.alpha * (a @ b)
        else:
            product = (op.alpha * a) @ b if place == "first" else a @ (op.alpha * b)
        return product if c is None else product + op.beta * c

    return forward


def gemm_gradient(place: str) -> Function:
    def backward(op: Any, grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (a, b, *rest) = grads, inputs
        a, b = a.T if op.transA else a, b.T if op.transB else b
        if place == "product":
            da, db = op.alpha * (dy @ b.T), op.alpha * (a.T @ dy)
        else:
            da, db = dy @ (op.alpha * b).T, (op.alpha * a).T @ dy
        dc = (None if c is None else op.beta * unbroadcast(dy, c.shape) for c in rest)
        return da.T if op.transA else da, db.T if op.transB else db, *dc

    return backward


# a convolution as a sum of products of matrices


def conv_by_taps(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    """A product of matrices for each tap of the kernel, and their sum."""
    windows = op.windows(x.shape, w.shape)
    columns = as_columns(windows.view(x), op.group, x.ndim - 2)
    groups, rows, n = columns.shape
    taps = math.prod(w.shape[2:])
    columns = columns.reshape(groups, rows // taps, taps, n)
    filters = as_filters(w, op.group).reshape(groups, -1, rows // taps, taps)
    y = np.stack([filters[..., t] @ columns[:, :, t] for t in range(taps)]).sum(0)
    y = from_columns(y, x.shape[0], windows.out)
    return y if b is None else y + along_channels(b, y.ndim)


def conv_from_bias(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    """Accumulators that begin with the bias."""
    windows = op.windows(x.shape, w.shape)
    columns, filters = as_columns(windows.view(x), op.group, x.ndim - 2), as_filters(w, op.group)
    terms = np.moveaxis(np.expand_dims(filters, 3) * np.expand_dims(columns, 1), 2, 0)
    if b is not None:
        first = np.broadcast_to(b.reshape(1, op.group, -1, 1), (1, *terms.shape[1:]))
        terms = np.concatenate((first, terms))
    return from_columns(terms.sum(0), x.shape[0], windows.out)


def conv_by_samples(op: Any, grads: Any, inputs: Any, outputs: Any) -> Any:
    """The filters' gradient of each sample, and their sum."""
    (dy,), (x, w, *bias) = grads, inputs
    windows, rank = op.windows(x.shape, w.shape), x.ndim - 2
    of_samples = []
    for i in range(x.shape[0]):
        columns = as_columns(windows.view(x[i : i + 1]), op.group, rank)
        product = as_columns(dy[i : i + 1], op.group, rank) @ columns.swapaxes(1, 2)
        of_samples.append(product.reshape(w.shape))
    dw = np.stack(of_samples).sum(0) if of_samples else None
    db = (None if b is None else dy.sum(tuple(range(2, dy.ndim))).sum(0) for b in bias)
    return None, dw, *db


# softmax and logarithms of it


def softmax_by_reciprocal(op: Any, x: Any) -> Any:
    e = np.exp(x - x.max(op.axis, keepdims=True))
    return e * (1 / e.sum(op.axis, keepdims=True))


def softmax_by_powers_of_two(op: Any, x: Any) -> Any:
    """As kernels of attention have it, whose processors have no other power."""
    e = np.exp2((x - x.max(op.axis, keepdims=True)) * math.log2(math.e))
    return e / e.sum(op.axis, keepdims=True)


def softmax_gradient(op: Any, grads: Any, inputs: Any, outputs: Any) -> Any:
    """y dy - y sum(y dy), which subtracts products."""
    (dy,), (y,) = grads, outputs
    weighted = y * dy
    return weighted - y * weighted.sum(op.axis, keepdims=True)


def log_softmax_in_order(op: Any, x: Any) -> Any:
    z = x - x.max(op.axis, keepdims=True)
    return z - np.log(np.exp(z).sum(op.axis, keepdims=True))


def cross_entropy_by_logsumexp(op: Any, scores: Any, labels: Any, weights: Any = None) -> Any:
    m = scores.max(1, keepdims=True)
    lse = m + np.log(np.exp(scores - m).sum(1, keepdims=True))
    share, classes = op.share(labels, weights)
    taken = np.take_along_axis(scores, np.expand_dims(classes, 1), 1).squeeze(1)
    loss = share * (lse.squeeze(1) - taken)
    if op.reduction != "none":
        loss = loss.sum() / share.sum() if op.reduction == "mean" else loss.sum()
    return loss, scores - lse


def loss_by_shares(op: Any, log_prob: Any, labels: Any, weights: Any = None) -> Any:
    """The weights divided by their sum first."""
    if op.reduction != "mean":
        return Loss.forward(op, log_prob, labels, weights)
    share, classes = op.share(labels, weights)
    taken = np.take_along_axis(log_prob, np.expand_dims(classes, 1), 1).squeeze(1)
    return -(taken * (share / share.sum())).sum()


# normalisations


def axis_by_axis(x: Any, axes: tuple[int, ...]) -> Any:
    for axis in sorted(axes, reverse=True):
        x = x.mean(axis, keepdims=True)
    return x


def at_once(x: Any, axes: tuple[int, ...]) -> Any:
    return x.mean(axes, keepdims=True)


def normalised(place: str, mean_of: Function = at_once) -> Function:
    """The scale on x, on the deviation, on its quotient, or folded into one factor of x."""

    def forward(op: Any, x: Any, scale: Any, b: Any = None, *running: Any) -> Any:
        axes, scale, b = _parameters(op, x, scale, b)
        if running and not op.training_mode:
            mean, var = (along_channels(r, x.ndim) for r in running)
        else:
            mean = mean_of(x, axes)
            var = mean_of((x - mean) * (x - mean), axes)
        rstd = 1 / np.sqrt(var + op.epsilon)
        if place == "folded":
            return x * (rstd * scale) + (b - mean * (rstd * scale))
        if place == "factor":
            return (x - mean) * (rstd * scale) + b
        return (
            (x - mean) * scale * rstd if place == "deviation" else (x - mean) * rstd * scale
        ) + b

    return forward


def normalised_gradient(form: str) -> Function:
    def backward(op: Any, grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy, *_), (x, scale, *b) = grads, inputs
        axes, scale, _ = _parameters(op, x, scale, *b or [None])
        n = math.prod(x.shape[axis] for axis in axes)
        mean = x.mean(axes, keepdims=True)
        rstd = 1 / np.sqrt(((x - mean) * (x - mean)).mean(axes, keepdims=True) + op.epsilon)
        xhat, g = (x - mean) * rstd, dy * scale
        if form == "sums":
            one, two = g.sum(axes, keepdims=True), (g * xhat).sum(axes, keepdims=True)
            return ((n * g - one - xhat * two) * (rstd / n),)
        if form == "products":
            one, two = g.mean(axes, keepdims=True), (g * xhat).mean(axes, keepdims=True)
            return (rstd * g - rstd * one - rstd * xhat * two,)
        t = g * rstd
        return (t - t.mean(axes, keepdims=True) - xhat * (t * xhat).mean(axes, keepdims=True),)

    return backward


def _parameters(op: Any, x: Any, scale: Any, b: Any) -> Any:
    axes = op.reduced(x.ndim)
    if op.name == "LayerNormalization":
        return axes, scale, 0.0 if b is None else b
    return axes, along_channels(scale, x.ndim), along_channels(b, x.ndim)


def rms_by_reciprocal(op: Any, x: Any, scale: Any) -> Any:
    return x * (1 / op.root_mean_square(x)) * scale


def rms_by_factor(op: Any, x: Any, scale: Any) -> Any:
    return x * (scale / op.root_mean_square(x))


def lrn_by_logarithm(op: Any, x: Any) -> Any:
    return x * np.exp(-op.beta * np.log(op.divisor(x)))


def lrn_by_scaled_squares(op: Any, x: Any) -> Any:
    s = op.over_channels(x * x * (op.alpha / op.size), (op.size - 1) // 2)
    return x / (op.bias + s) ** op.beta


# means


def average_pool(place: str) -> Function:
    def forward(op: Any, x: Any) -> Any:
        windows, taps = op.windows(x.shape), tuple(range(-len(op.kernel_shape), 0))
        counted, view = windows.counted(padding=bool(op.count_include_pad)), windows.view(x)
        if place == "sum":
            return view.sum(taps) / counted
        if place == "reciprocal":
            return view.sum(taps) * (1 / counted)
        return (view * (1 / np.expand_dims(counted, taps))).sum(taps)

    return forward


def mean(place: str) -> Function:
    def forward(op: Any, x: Any, axes: Any = None) -> Any:
        pool = op.name == "GlobalAveragePool"
        over = tuple(range(2, x.ndim)) if pool else op.reduced(x, axes)
        n = float(math.prod(x.shape[axis] for axis in over))
        if not over:
            return x.copy()
        if place == "axes":
            y = axis_by_axis(x, over)
        elif place == "sum":
            y = x.sum(over, keepdims=True) * (1 / n)
        else:
            y = (x * (1 / n)).sum(over, keepdims=True)
        return y if pool or op.keepdims else y.squeeze(over)

    return forward


NORMALISED = (
    normalised("folded"),
    normalised("factor"),
    normalised("deviation"),
    normalised("quotient", axis_by_axis),
)
MEANS = (mean("axes"), mean("sum"), mean("terms"))
# partial sums as a product with a triangle of ones, as matrix units compute a scan


def partial_sums_by_product(op: Any, x: Any, axis: Any) -> Any:
    x = np.moveaxis(x, int(axis), 0)
    ones = np.tril(np.ones((len(x), len(x))), -op.exclusive)
    columns = x.reshape(len(x), math.prod(x.shape[1:]))
    y = (ones.T if op.reverse else ones) @ columns
    return np.moveaxis(y.reshape(x.shape), 0, int(axis))


# tensors added in another order


def sum_from_the_last(op: Any, *xs: Any) -> Any:
    total = xs[-1]
    for x in reversed(xs[:-1]):
        total = x + total
    return total if len(xs) > 1 else total.copy()


def sum_by_pairs(op: Any, *xs: Any) -> Any:
    if len(xs) < 3:
        return sum_from_the_last(op, *xs)
    half = len(xs) // 2
    return sum_by_pairs(op, *xs[:half]) + sum_by_pairs(op, *xs[half:])


# a bias as the first term of the sum, as an accumulator begins with it; both biases as one


def gemm_from_c(op: Any, a: Any, b: Any, c: Any = None) -> Any:
    a, b = a.T if op.transA else a, b.T if op.transB else b
    terms = np.expand_dims(a.T, 2) * np.expand_dims(b, 1) * op.alpha
    if c is None:
        return terms.sum(0)
    first = np.broadcast_to(op.beta * c, terms.shape[1:])
    return np.concatenate((np.expand_dims(first, 0), terms)).sum(0)


def biases_together(op: Any, x: Any, w: Any, r: Any, b: Any = None, *rest: Any) -> Any:
    if b is not None and not getattr(op, "linear_before_reset", 0):
        wb, rb = np.split(b, 2, 1)
        b = np.concatenate((wb + rb, np.zeros_like(rb)), 1)
    return type(op).forward(op, x, w, r, b, *rest)


class OneSum:
    """A recurrent layer that collects x W, h R and both biases in one accumulator.

    Its cells get x itself, as a product with an identity, and all weights in the place of r.
    """

    def _passes(self: Any, inputs: Any) -> Any:
        for run in super()._passes(inputs):  # type: ignore[misc]
            width = run.x.shape[2]
            yield replace(run, w=np.eye(width), wb=np.zeros(width), r=run)

    def cell(self: Any, x: Any, states: Any, run: Any) -> Any:
        weights, h = run.r, states[0]
        cell = super().cell  # type: ignore[misc]
        alone = replace(weights, r=np.zeros_like(weights.r), rb=np.zeros_like(weights.rb))
        a = total(x, h, weights)
        if self.name == "GRU":
            gates = 2 * h.shape[1]
            if self.linear_before_reset:
                alone.r[gates:], alone.rb[gates:] = weights.r[gates:], weights.rb[gates:]
                g = (x @ weights.w.T + weights.wb)[:, gates:]
            else:
                _, (*_, reset) = cell(a, states, alone)
                g = total(x, reset, weights)[:, gates:]
            a = np.concatenate([a[:, :gates], g], 1)
        return cell(a, states, alone)


def total(x: Any, h: Any, run: Any) -> Any:
    """x W, h R and both biases as one sum."""
    one = np.ones((len(x), 1))
    columns = run.w, np.expand_dims(run.wb, 1), run.r, np.expand_dims(run.rb, 1)
    return np.concatenate([x, one, h, one], 1) @ np.concatenate(columns, 1).T


def in_one_sum(op: Any, *inputs: Any) -> Any:
    return type(op.name, (OneSum, type(op)), {})(**vars(op)).forward(*inputs)


FORWARDS: Mapping[str, tuple[Function, ...]] = {
    "Gemm": (gemm("product"), gemm("first"), gemm("second"), gemm_from_c),
    "Conv": (conv_by_taps, conv_from_bias),
    "CumSum": (partial_sums_by_product,),
    "Sum": (sum_from_the_last, sum_by_pairs),
    "RNN": (biases_together, in_one_sum),
    "LSTM": (biases_together, in_one_sum),
    "GRU": (biases_together, in_one_sum),
    "Softmax": (softmax_by_reciprocal, softmax_by_powers_of_two),
    "LogSoftmax": (log_softmax_in_order,),
    "SoftmaxCrossEntropyLoss": (cross_entropy_by_logsumexp,),
    "NegativeLogLikelihoodLoss": (loss_by_shares,),
    "BatchNormalization": NORMALISED,
    "InstanceNormalization": NORMALISED,
    "LayerNormalization": NORMALISED,
    "RMSNormalization": (rms_by_reciprocal, rms_by_factor),
    "LRN": (lrn_by_logarithm, lrn_by_scaled_squares),
    "AveragePool": (average_pool("sum"), average_pool("reciprocal"), average_pool("terms")),
    "GlobalAveragePool": MEANS,
    "ReduceMean": MEANS,
}
BACKWARDS: Mapping[str, tuple[Function, ...]] = {
    "Gemm": (gemm_gradient("product"), gemm_gradient("factors")),
    "Conv": (conv_by_samples,),
    "Softmax": (softmax_gradient,),
    "InstanceNormalization": tuple(map(normalised_gradient, ("sums", "products", "terms"))),
    "LayerNormalization": tuple(map(normalised_gradient, ("sums", "products", "terms"))),
}
