"""RNN, LSTM and GRU by the functions of `torch._VF`, which `torch.nn`'s modules call."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import _VF, Tensor

from d5test.backends.base import Plan, Table, Unsupported, padded, planned
from d5test.backends.torch.arguments import Ints

rows = Table()
ABSENT = ("clip", "input_forget", "activation_alpha", "activation_beta")


@rows.native("RNN")
@planned
def rnn(op: Any, *tensors: Tensor | None) -> Plan:
    f = op.activations[0] if op.activations else "Tanh"
    run = _VF.rnn_relu if f == "Relu" else _VF.rnn_tanh
    return recurrence(op, run, (0,), (f,), padded(tensors, 6))


# oneDNN's logistic function is 0 where float32 has only subnormal numbers
@rows.native("LSTM", flushes=True)
@planned
def lstm(op: Any, *tensors: Tensor | None) -> Plan:
    *without, peepholes = padded(tensors, 8)
    if peepholes is not None:
        raise Unsupported("torch's LSTM has no peepholes")
    return recurrence(op, _VF.lstm, (0, 2, 3, 1), ("Sigmoid", "Tanh", "Tanh"), without)


@rows.native("GRU")
@planned
def gru(op: Any, *tensors: Tensor | None) -> Plan:
    """Composed (step by step) if the reset comes before the linear map, which torch has not."""
    run = _VF.gru if op.linear_before_reset else reset_first
    return recurrence(op, run, (1, 0, 2), ("Sigmoid", "Tanh"), padded(tensors, 6))


def recurrence(
    op: Any, run: Any, order: Ints, activations: Sequence[str], tensors: Sequence[Any]
) -> Plan:
    """One layer by `run`, a function of `torch._VF`, whose gates are ONNX's in this `order`."""
    x, w, r, b, lengths, *states = tensors
    directions, hidden = w.shape[0], r.shape[2]
    refuse(op, tuple(activations) * directions, lengths)
    first, backwards = int(bool(op.layout)), op.direction == "reverse"
    n, features = x.shape[1 - first], x.shape[2]
    # torch.nn.RNNBase, which users call, checks this; torch._VF goes on and corrupts memory
    sizes = (len(order) * hidden, features), (len(order) * hidden, hidden)
    if (w.shape[1:], r.shape[1:]) != sizes or (b is not None and b.shape[1] != 2 * sizes[0][0]):
        raise RuntimeError(f"weights {tuple(w.shape)}, {tuple(r.shape)} do not fit {x.shape}")
    if any(s is not None and s.numel() != directions * n * hidden for s in states):
        raise RuntimeError("an initial state does not fit the batch and the hidden size")
    options = (b is not None, 1, 0.0, True, directions == 2, False)
    shape, count = (directions, n, hidden), len(states)

    def call(x: Any, w: Any, r: Any, b: Any = None, *rest: Any) -> tuple[Tensor, ...]:
        x = x.transpose(0, 1) if first else x
        starts = begin(x, rest[1:], shape, count, first)
        weights = []
        for d in range(directions):
            biases = () if b is None else b[d].chunk(2)
            weights += [ordered(gates, order) for gates in (w[d], r[d], *biases)]
        y, *last = run(x.flip(0) if backwards else x, starts, weights, *options)
        y = y.flip(0) if backwards else y
        y = y.unflatten(2, (directions, hidden))
        if first:
            return (y.transpose(0, 1), *(s.transpose(0, 1) for s in last))
        return (y.transpose(1, 2), *last)

    return call


def refuse(op: Any, needed: tuple[str, ...], lengths: Tensor | None) -> None:
    """Raise `Unsupported` for what torch's recurrences have not."""
    if lengths is not None:
        raise Unsupported("torch's recurrences take no lengths but packed sequences")
    for name in ABSENT:
        if getattr(op, name, None):
            raise Unsupported(f"torch's recurrences have no {name}")
    if tuple(getattr(op, "activations", None) or needed)[: len(needed)] != needed:
        raise Unsupported(f"this recurrence of torch's has no activations but {needed}")


def begin(x: Tensor, states: Sequence[Tensor | None], shape: Ints, count: int, first: int) -> Any:
    """The initial states as `run` takes them, zeros for absent ones."""
    begins = []
    for state in padded(states, count)[:count]:
        if state is None:
            begins.append(x.new_zeros(shape))
        else:
            begins.append(state.transpose(0, 1).contiguous() if first else state)
    return tuple(begins) if count > 1 else begins[0]


def ordered(gates: Tensor, order: Ints) -> Tensor:
    """The gates of ONNX in torch's order."""
    chunks = gates.chunk(len(order))
    return torch.cat([chunks[i] for i in order])


def reset_first(
    x: Tensor, starts: Tensor, weights: list[Tensor], biased: bool, *_: Any
) -> tuple[Tensor, Tensor]:
    """A GRU with gates r, z, n and n = tanh(Wn x + Rn (r h)), with `torch._VF.gru`'s arguments."""
    n_weights, outputs, last = len(weights) // len(starts), [], []
    for d, h in enumerate(starts):
        w, r, *biases = weights[d * n_weights : (d + 1) * n_weights]
        wb, rb = biases if biased else (w.new_zeros(len(w)), w.new_zeros(len(w)))
        gates, hs = F.linear(x, w, wb + rb), []
        n = h.shape[-1]
        for t in range(len(x))[:: -1 if d else 1]:
            reset, z = torch.sigmoid(gates[t, :, : 2 * n] + h @ r[: 2 * n].T).chunk(2, 1)
            candidate = torch.tanh(gates[t, :, 2 * n :] + (reset * h) @ r[2 * n :].T)
            h = (1 - z) * candidate + z * h
            hs.append(h)
        outputs.append(torch.stack(hs[:: -1 if d else 1]))
        last.append(h)
    return torch.cat(outputs, 2), torch.stack(last)
