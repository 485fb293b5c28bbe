"""Cases of recurrent layers: mostly a few steps, both directions and layouts, optional inputs.

ONNX allows hidden_size to be omitted; it is always drawn, since runtimes ask for it.
"""

from typing import Any

from d5test.case import Tensor
from d5test.reference.operators import recurrent as ops
from d5test.reference.operators.recurrent import Recurrent
from d5test.strategies.draw import ORDINARY, Draw, Regime
from d5test.strategies.registry import attributes, inputs

STEPS, MANY_STEPS = 5, 65
FEW_UNITS = 8
"""Hidden units, and no more, with which there may be many steps: with more of them, or with
ordinary weights, the recurrence is chaotic, and no bar of an honest computation is small."""
RARELY = 4
"""One case in five, about."""
SATURATES_LITTLE: tuple[Regime, ...] = ("normal", ("scaled", -1), "uniform", "onehot")
"""Regimes of weights in which gates do not all stand at 0 or 1."""
SMALL: tuple[Regime, ...] = (("scaled", -1), ("scaled", -2), "uniform", "onehot")
"""Regimes of weights in 16 bits, where bars soon grow beyond telling anything."""
CONTRACTING: tuple[Regime, ...] = (("scaled", -2),)
"""Regimes of weights with which many steps forget what was long ago."""


@attributes(ops.RNN)
def rnn_attributes(d: Draw) -> ops.RNN:
    """Both functions, one for each direction."""
    shared = layer(d)
    both = shared["direction"] == "bidirectional"
    relu = (("Relu", "Relu"), ("Relu", "Tanh")) if both else (("Relu",),)
    return ops.RNN(**shared, activations=d.choose((("Tanh", "Tanh"), *relu)))


@attributes(ops.GRU)
def gru_attributes(d: Draw) -> ops.GRU:
    """The reset gate before and after the product."""
    return ops.GRU(**layer(d), linear_before_reset=d.choose((0, 1)))


@attributes(ops.LSTM)
def lstm_attributes(d: Draw) -> ops.LSTM:
    """Directions and layouts."""
    return ops.LSTM(**layer(d))


def layer(d: Draw) -> dict[str, Any]:
    """The attributes that recurrent layers share."""
    return {
        "direction": d.choose(("forward", "reverse", "bidirectional")),
        "hidden_size": d.side(most=4),
        "layout": d.choose((0, 1)),
    }


@inputs(ops.RNN, ops.LSTM, ops.GRU)
def sequence(d: Draw, op: Recurrent) -> tuple[Tensor | None, ...]:
    """The inputs of a layer; those left out at the end are None or not there at all."""
    wide = d.dtype in ("float64", "float32")
    h = op.hidden_size or d.side(most=4)
    steps = d.side(most=STEPS if wide else 3, few=not wide)
    steps = min(steps, MANY_STEPS if h <= FEW_UNITS else STEPS)
    n, width = d.samples(most=4), d.side(most=5)
    directions, rows = 2 if op.direction == "bidirectional" else 1, op.gates * h

    def weights(*shape: int) -> Tensor:
        regimes = SATURATES_LITTLE if wide else SMALL
        return d.tensor((directions, *shape), *(CONTRACTING if steps > STEPS else regimes))

    state = (n, directions, h) if op.layout else (directions, n, h)
    x = (n, steps, width) if op.layout else (steps, n, width)
    regimes = ORDINARY if wide else SATURATES_LITTLE
    drawn: list[Tensor | None] = [d.tensor(x, *regimes), weights(rows, width), weights(rows, h)]
    drawn.append(d.maybe(weights(2 * rows)))
    # few frameworks have lengths and peepholes: rarely, so that the rest is judged more often
    lengths = d.integer(0, RARELY) == RARELY
    ends = [d.integer(1, steps) for _ in range(n)] if lengths else []
    drawn.append(d.literal(ends, dtype="int32") if lengths else None)
    drawn += [d.maybe(d.tensor(state)) for _ in range(op.states)]
    if isinstance(op, ops.LSTM):
        drawn.append(weights(3 * h) if d.integer(0, RARELY) == RARELY else None)
    if d.flag():
        while drawn[-1] is None:
            drawn.pop()
    return tuple(drawn)
