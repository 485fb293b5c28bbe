"""RNN, LSTM and GRU, step by step."""

from collections.abc import Callable
from functools import partial
from typing import Any

from d5test.backends.base import Table, Unsupported, padded
from d5test.backends.tensorflow.framework import tf

rows = Table()

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Relu": tf.nn.relu,
    "Sigmoid": tf.sigmoid,
    "Softplus": tf.math.softplus,
    "Softsign": tf.nn.softsign,
    "Tanh": tf.tanh,
}


def activations(op: Any, names: tuple[str, ...], directions: int) -> list[Callable[[Any], Any]]:
    """The activation functions of all directions; `names` are the defaults of one."""
    for attribute in ("activation_alpha", "activation_beta", "clip"):
        if getattr(op, attribute, None) is not None:
            raise Unsupported(f"this row composes no recurrence with {attribute}")
    chosen = (getattr(op, "activations", None) or names * directions)[: len(names) * directions]
    if not set(chosen) <= set(ACTIVATIONS):
        raise Unsupported(f"TensorFlow has no function of one argument for one of {chosen}")
    return [ACTIVATIONS[name] for name in chosen]


def recurrence(
    names: tuple[str, ...], cell: Callable[..., Any], count: int, op: Any, *inputs: Any
) -> tuple[Any, ...]:
    """Y, then the last of each of `count` states. A step is a call
    `cell(op, activations, xw, r, rb, peepholes, *states)`.
    """
    x, w, r, b, lens, *rest = padded(inputs, 8)
    states, peepholes = rest[:count], rest[count]
    if op.layout:
        x = tf.transpose(x, (1, 0, 2))
        states = [s if s is None else tf.transpose(s, (1, 0, 2)) for s in states]
    (time, n), (directions, _, hidden) = x.shape[:2], r.shape
    functions = activations(op, names, directions)
    ys, lasts = [], []
    for d in range(directions):
        xw, rb = tf.matmul(x, w[d], transpose_b=True), None
        if b is not None:
            wb, rb = tf.split(b[d], 2)
            xw += wb
        state = tuple(tf.zeros((n, hidden), x.dtype) if s is None else s[d] for s in states)
        step = partial(cell, op, functions[d * len(names) : (d + 1) * len(names)])
        peephole = None if peepholes is None else peepholes[d]
        y: list[Any] = [None] * time
        backwards = op.direction == "reverse" or d == 1
        for t in reversed(range(time)) if backwards else range(time):
            new = step(xw[t], r[d], rb, peephole, *state)
            y[t] = new[0]
            if lens is not None:
                live = (t < lens)[:, None]
                y[t] = tf.where(live, y[t], tf.zeros_like(y[t]))
                new = tuple(tf.where(live, a, b) for a, b in zip(new, state, strict=True))
            state = new
        ys.append(tf.stack(y) if y else tf.zeros((0, n, hidden), x.dtype))
        lasts.append(state)
    last = [tf.stack(s) for s in zip(*lasts, strict=True)]
    if op.layout:
        last = [tf.transpose(s, (1, 0, 2)) for s in last]
        return tf.transpose(tf.stack(ys), (2, 1, 0, 3)), *last
    return tf.stack(ys, 1), *last


def times(h: Any, r: Any, b: Any) -> Any:
    y = tf.matmul(h, r, transpose_b=True)
    return y if b is None else y + b


def rnn_cell(op: Any, f: Any, xw: Any, r: Any, rb: Any, p: Any, h: Any) -> tuple[Any, ...]:
    return (f[0](xw + times(h, r, rb)),)


def lstm_cell(op: Any, f: Any, xw: Any, r: Any, rb: Any, p: Any, h: Any, c: Any) -> Any:
    i, o, forget, new = tf.split(xw + times(h, r, rb), 4, -1)
    pi, po, pf = (None, None, None) if p is None else tf.split(p, 3)
    i = f[0](i if p is None else i + pi * c)
    if getattr(op, "input_forget", 0):
        forget = 1 - i
    else:
        forget = f[0](forget if p is None else forget + pf * c)
    c = forget * c + i * f[1](new)
    return f[0](o if p is None else o + po * c) * f[2](c), c


def gru_cell(op: Any, f: Any, xw: Any, r: Any, rb: Any, p: Any, h: Any) -> tuple[Any, ...]:
    xz, xr, xh = tf.split(xw, 3, -1)
    rz, rr, rh = tf.split(r, 3)
    bz, br, bh = (None, None, None) if rb is None else tf.split(rb, 3)
    z, reset = f[0](xz + times(h, rz, bz)), f[0](xr + times(h, rr, br))
    inner = reset * times(h, rh, bh) if op.linear_before_reset else times(reset * h, rh, bh)
    return ((1 - z) * f[1](xh + inner) + z * h,)


rows.composed("RNN", arithmetic="S")(partial(recurrence, ("Tanh",), rnn_cell, 1))
rows.composed("LSTM", arithmetic="S")(
    partial(recurrence, ("Sigmoid", "Tanh", "Tanh"), lstm_cell, 2)
)
rows.composed("GRU", arithmetic="S")(partial(recurrence, ("Sigmoid", "Tanh"), gru_cell, 1))
