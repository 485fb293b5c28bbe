"""Normalisations by mean and deviation, over the batch, over axes, over groups of channels."""

from typing import Any

from d5test.backends.base import Table
from d5test.backends.jax.framework import Array, channelwise, jnp, lax, wide

rows = Table()


def stashed(op: Any, x: Array) -> Array:
    """The input in the type that `stash_type` asks for, but never narrower than it is."""
    return wide(x) if op.stash_type == 1 else x


def standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Not `nn.standardize`: by design its variance is E[x^2] - E[x]^2, which cancels."""
    mean, var = (f(x, axes, keepdims=True) for f in (jnp.mean, jnp.var))
    return (x - mean) * lax.rsqrt(var + epsilon)


@rows.composed("MeanVarianceNormalization", arithmetic="S")
def mean_variance(op: Any, x: Array) -> Array:
    deviation = jnp.std(x, axis=op.axes, keepdims=True)
    return (x - jnp.mean(x, axis=op.axes, keepdims=True)) / (deviation + 1e-9)


@rows.composed("BatchNormalization", arithmetic="S")
def batch_normalization(op: Any, x: Array, scale: Array, b: Array, mean: Array, var: Array) -> Any:
    if not op.training_mode:
        root = lax.rsqrt(channelwise(var, x) + op.epsilon)
        return (x - channelwise(mean, x)) * root * channelwise(scale, x) + channelwise(b, x)
    axes = (0, *range(2, x.ndim))
    now, spread = jnp.mean(x, axes), jnp.var(x, axes)
    # in float32 at least, as jax's libraries do: the root's gradient overflows float16
    xhat = standardized(wide(x), axes, op.epsilon).astype(x.dtype)
    y = xhat * channelwise(scale, x) + channelwise(b, x)
    m = op.momentum
    return y, mean * m + now * (1 - m), var * m + spread * (1 - m)


@rows.composed("LayerNormalization", arithmetic="S")
def layer_normalization(op: Any, x: Array, scale: Array, b: Array | None = None) -> Any:
    v, axes = stashed(op, x), tuple(range(op.axis % x.ndim, x.ndim))
    mean = jnp.mean(v, axes, keepdims=True)
    root = lax.rsqrt(jnp.var(v, axes, keepdims=True) + op.epsilon)
    y = ((v - mean) * root).astype(x.dtype) * scale
    return (y if b is None else y + b), mean, root


@rows.composed("GroupNormalization", arithmetic="S")
def group_normalization(op: Any, x: Array, scale: Array, b: Array) -> Array:
    v = stashed(op, x).reshape(x.shape[0], op.num_groups, -1)
    y = standardized(v, (-1,), op.epsilon).astype(x.dtype).reshape(x.shape)
    return y * channelwise(scale, x) + channelwise(b, x)


@rows.composed("InstanceNormalization", arithmetic="S")
def instance_normalization(op: Any, x: Array, scale: Array, b: Array) -> Array:
    y = standardized(wide(x), tuple(range(2, x.ndim)), op.epsilon).astype(x.dtype)
    return y * channelwise(scale, x) + channelwise(b, x)


@rows.composed("RMSNormalization", arithmetic="S")
def rms_normalization(op: Any, x: Array, scale: Array) -> Array:
    v, axes = stashed(op, x), tuple(range(op.axis % x.ndim, x.ndim))
    root = lax.rsqrt(jnp.mean(v * v, axes, keepdims=True) + op.epsilon)
    return (v * root).astype(x.dtype) * scale


@rows.composed("LRN", arithmetic="S")
def lrn(op: Any, x: Array) -> Array:
    before = (op.size - 1) // 2
    widths = [(0, 0)] * x.ndim
    widths[1] = (before, op.size - 1 - before)
    squares = jnp.pad(x * x, widths)
    total = sum(squares[:, i : i + x.shape[1]] for i in range(op.size))
    return x / (op.bias + op.alpha / op.size * total) ** op.beta
