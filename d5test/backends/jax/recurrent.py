"""RNN, LSTM and GRU, by `lax.scan`.

Compiled as a whole: `scan` is compiled anyhow, and for each call anew where its step is a new
function.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from d5test.backends.base import Table, Unsupported, padded
from d5test.backends.jax.framework import Array, jax, jnp, lax, nn

rows = Table()
ACTIVATIONS = {"Relu": nn.relu, "Tanh": jnp.tanh, "Sigmoid": nn.sigmoid}


@partial(jax.jit, static_argnums=(0, 1, 2))
def recurrence(cell: Callable[..., Any], count: int, op: Any, *inputs: Any) -> tuple[Array, ...]:
    """`cell` over time in each direction: all hidden states, then the last of `count` states."""
    x, w, r, b, lengths, *starts = padded(inputs, 8)
    starts, peepholes = starts[:count], starts[count]
    if op.layout:
        x, starts = (x.swapaxes(0, 1), [s if s is None else s.swapaxes(0, 1) for s in starts])
    zero, ways = jnp.zeros((x.shape[1], r.shape[2]), x.dtype), []
    for k in range(w.shape[0]):
        bias = jnp.split(jnp.zeros(2 * w.shape[1], x.dtype) if b is None else b[k], 2)
        peep = (None,) * 3 if peepholes is None else jnp.split(peepholes[k], 3)
        step = partial(cell, op, k, r[k], bias, peep)
        turn = partial(turned, step, lengths)
        times = (jnp.arange(x.shape[0]), x @ w[k].T)
        start = tuple(zero if s is None else s[k] for s in starts)
        ways.append(lax.scan(turn, start, times, reverse=k == 1 or op.direction == "reverse"))
    y = jnp.stack([ys for _, ys in ways], 1)
    last = [jnp.stack(states) for states in zip(*(end for end, _ in ways), strict=True)]
    if op.layout:
        y, last = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in last]
    return y, *last


def turned(step: Callable[..., Any], lengths: Any, states: Any, now: Any) -> Any:
    """One step of `lax.scan`; a sequence beyond its end keeps its states and puts out zeros."""
    t, xw = now
    new = step(xw, *states)
    if lengths is None:
        return new, new[0]
    alive = (t < lengths)[:, None]
    kept = tuple(jnp.where(alive, n, old) for n, old in zip(new, states, strict=True))
    return kept, jnp.where(alive, new[0], 0)


def rnn_cell(op: Any, k: int, r: Array, bias: Any, p: Any, xw: Array, h: Array) -> Any:
    name = (op.activations or ("Tanh",) * 2)[k]
    if name not in ACTIVATIONS:
        raise Unsupported(f"activation {name} of RNN is not among {', '.join(ACTIVATIONS)}")
    return (ACTIVATIONS[name](xw + h @ r.T + bias[0] + bias[1]),)


def lstm_cell(op: Any, k: int, r: Array, bias: Any, p: Any, xw: Array, h: Array, c: Array) -> Any:
    i, o, f, g = jnp.split(xw + h @ r.T + bias[0] + bias[1], 4, -1)
    c_next = nn.sigmoid(seen(f, p[2], c)) * c + nn.sigmoid(seen(i, p[0], c)) * jnp.tanh(g)
    return nn.sigmoid(seen(o, p[1], c_next)) * jnp.tanh(c_next), c_next


def seen(z: Array, peephole: Any, c: Array) -> Array:
    """z plus what a gate sees of c; without a peephole nothing, not even of infinity."""
    return z if peephole is None else z + peephole * c


def gru_cell(op: Any, k: int, r: Array, bias: Any, p: Any, xw: Array, h: Array) -> Any:
    xz, xr, xh = jnp.split(xw + bias[0], 3, -1)
    (rz, rr, rh), (bz, br, bh) = jnp.split(r, 3), jnp.split(bias[1], 3)
    z, reset = nn.sigmoid(xz + h @ rz.T + bz), nn.sigmoid(xr + h @ rr.T + br)
    past = reset * (h @ rh.T + bh) if op.linear_before_reset else (reset * h) @ rh.T + bh
    return ((1 - z) * jnp.tanh(xh + past) + z * h,)


rows.composed("RNN", arithmetic="S")(partial(recurrence, rnn_cell, 1))
rows.composed("LSTM", arithmetic="S")(partial(recurrence, lstm_cell, 2))
rows.composed("GRU", arithmetic="S")(partial(recurrence, gru_cell, 1))
