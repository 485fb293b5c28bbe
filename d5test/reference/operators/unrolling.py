"""A cell unrolled over a sequence, and its gradients by backpropagation through time.

W multiplies the inputs of all steps at once. What remains of a step is its cell: it takes the
product `a` of its input, the states, R, and returns the next states. A sample shorter than the
longest keeps its states beyond its end, where its outputs are zero; so, backwards, it starts at
its own last element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from d5test.case import Batch, Operator


@dataclass(frozen=True)
class Weights:
    """What a cell multiplies its states with: r: (gates h, h), rb: (gates h,), p: (3 h,)."""

    r: Any
    rb: Any
    p: Any
    activation: str


@dataclass(frozen=True)
class Pass:
    """One direction of a layer: its inputs, time first."""

    x: Any
    w: Any
    wb: Any
    weights: Weights
    states: tuple[Any, ...]
    valid: Any
    times: range


@dataclass(frozen=True, kw_only=True, repr=False)
class Recurrent(Operator):
    """A layer of cells. x: (t, n, i), w: (directions, gates h, i), r: (directions, gates h, h),
    b: (directions, 2 gates h), biases of W before those of R, sequence_lens: (n,) integers,
    initial_h: (directions, n, h).

    Outputs y: (t, directions, n, h), and the last states: (directions, n, h). With `layout` 1, n
    comes first in x, the states and the outputs. ONNX gives initial states no gradient.
    """

    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0
    since = 22

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def activation(self, direction: int) -> str:
        """The function of the hidden state, where a layer leaves the choice."""
        return "Tanh"

    def cell(self, a, states, weights):
        """The next states, the hidden one first, and what the gradient needs."""
        raise NotImplementedError

    def cell_vjp(self, dnext, states, gates, weights):
        """Gradients of a, of each gate's product with R, of the states, of the peepholes; and
        what each gate's R was multiplied with."""
        raise NotImplementedError

    def forward(self, x, w, r, b=None, sequence_lens=None, *rest):
        inputs = (x, w, r, b, sequence_lens, *rest)
        runs = [self._unroll(run)[0] for run in self._passes(inputs)]
        y = np.stack([run[0] for run in runs], 1)
        lasts = [np.stack([run[1][k] for run in runs]) for k in range(self.states)]
        if self.layout:
            y, lasts = y.transpose(2, 0, 1, 3), [last.swapaxes(0, 1) for last in lasts]
        return y, *lasts

    def backward(self, grads, inputs, outputs):
        dy, *dlasts = grads
        if self.layout:
            dy, dlasts = dy.transpose(1, 2, 0, 3), [d.swapaxes(0, 1) for d in dlasts]
        dx, parts = 0, []
        for d, run in enumerate(self._passes(inputs)):
            dx_part, *dweights = self._unroll_vjp(run, dy[:, d], [last[d] for last in dlasts])
            dx = dx + dx_part
            parts.append(dweights)
        dw, dr, db, dp = (np.stack(gradients) for gradients in zip(*parts, strict=True))
        gradients = (dx.swapaxes(0, 1) if self.layout else dx, dw, dr, db, None, None, None, dp)
        return tuple(
            None if x is None else d for d, x in zip(gradients[: len(inputs)], inputs, strict=True)
        )

    def batch(self, *shapes):
        steps = 1 - self.layout
        along = (steps, None, None, None, 0, steps, steps, None)[: len(shapes)]
        outputs = (0,) * (1 + self.states) if self.layout else (2, *(1,) * self.states)
        given = zip(along, shapes, strict=True)
        return Batch(tuple(None if s is None else a for a, s in given), outputs)

    def multiplications(self, *shapes):
        x, w, r = shapes[:3]
        return x[0] * x[1] * (math.prod(w) + math.prod(r))

    def _passes(self, inputs):
        """The directions of the layer."""
        x, w, r, b, lengths, *rest = inputs + (None,) * (8 - len(inputs))
        initial, p = rest[: self.states], rest[2]
        if self.layout:
            x = x.swapaxes(0, 1)
            initial = [None if s is None else s.swapaxes(0, 1) for s in initial]
        t, n, _ = x.shape
        h = r.shape[2]
        if b is None:
            b = np.zeros_like(w, shape=(len(w), 2 * self.gates * h))
        if p is None:
            p = np.zeros_like(w, shape=(len(w), 3 * h))
        zeros = np.zeros_like(x, shape=(n, h))
        lengths = np.full(n, t) if lengths is None else lengths
        directions = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}
        for d, sign in enumerate(directions[self.direction]):
            wb, rb = np.split(b[d], 2)
            yield Pass(
                x=x,
                w=w[d],
                wb=wb,
                weights=Weights(r[d], rb, p[d], self.activation(d)),
                states=tuple(zeros if s is None else s[d] for s in initial),
                valid=np.arange(t).reshape(t, 1, 1) < lengths.reshape(n, 1),
                times=range(t)[::sign],
            )

    def _unroll(self, run):
        """All outputs and the last states; for each time the states before, and the gates."""
        a = run.x @ run.w.T + run.wb
        y = np.zeros_like(run.x, shape=(len(run.x), *run.states[0].shape))
        states, memory = run.states, {}
        for t in run.times:
            after, gates = self.cell(a[t], states, run.weights)
            memory[t] = states, gates
            y[t] = np.where(run.valid[t], after[0], np.zeros_like(after[0]))
            states = tuple(
                np.where(run.valid[t], new, old) for new, old in zip(after, states, strict=True)
            )
        return (y, states), memory

    def _unroll_vjp(self, run, dy, dlasts):
        """Gradients of x, w, r, b and p."""
        _, memory = self._unroll(run)
        (t, n, h), g = dy.shape, self.gates
        da = np.zeros_like(dy, shape=(t, n, g * h))
        du = np.zeros_like(dy, shape=(t, n, g * h))
        multiplied = np.zeros_like(dy, shape=(t, n, g, h))
        dp = np.zeros_like(dy, shape=(t, n, 3 * h))
        dstates = tuple(dlasts)
        for t in reversed(run.times):
            valid, (before, gates) = run.valid[t], memory[t]
            dh, *others = dstates
            dnext = tuple(np.where(valid, d, np.zeros_like(d)) for d in (dh + dy[t], *others))
            da[t], du[t], dbefore, dp[t], multiplied[t] = self.cell_vjp(
                dnext, before, gates, run.weights
            )
            dstates = tuple(
                np.where(valid, new, old) for new, old in zip(dbefore, dstates, strict=True)
            )
        dw = np.tensordot(da, run.x, ((0, 1), (0, 1)))
        dr = np.einsum("tngh,tngk->ghk", du.reshape(multiplied.shape), multiplied)
        db = np.concatenate((da.sum((0, 1)), du.sum((0, 1))))
        return da @ run.w, dw, dr.reshape(run.weights.r.shape), db, dp.sum((0, 1))
