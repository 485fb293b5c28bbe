"""Recurrent layers: a cell unrolled over a sequence, and backpropagation through time.

W multiplies the inputs of all steps at once. What remains of a step is its cell: it takes `a`, the
product of its input with W, biases of W added, adds the states' product with R, and returns the
next states. `cell_vjp` returns the gradients of `a`, of the products with R, of the states and of
the peepholes, and what each gate's part of R was multiplied with.

A sample shorter than the longest keeps its states beyond its end, where its outputs are zero; so,
backwards, it starts at its own last element.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from d5test.case import Batch, Operator

__all__ = ["GRU", "LSTM", "RNN"]


@dataclass(frozen=True)
class Pass:
    """One direction of a layer, and its inputs, time first.

    w: (gates h, i), wb: (gates h,), r: (gates h, h), rb: (gates h,)
    p: those of gates i, o and f, each (h,), or None where there are none
    """

    direction: int
    x: Any
    w: Any
    wb: Any
    r: Any
    rb: Any
    p: Any
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

    def cell(self, a, states, run):
        """The next states, the hidden one first, and what the gradient needs."""
        raise NotImplementedError

    def cell_vjp(self, dnext, states, gates, run):
        """Gradients of a, of each gate's product with R, of the states, of the peepholes; and
        what each gate's R was multiplied with."""
        raise NotImplementedError

    def gate(self, z):
        """The activation of a gate."""
        return expit(z)

    def candidate(self, z):
        """The activation of the candidate state."""
        return np.tanh(z)

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
        pairs = zip(along, shapes, strict=True)
        return Batch(tuple(None if s is None else a for a, s in pairs), outputs)

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
        zeros = np.zeros_like(x, shape=(n, h))
        lengths = np.full(n, t) if lengths is None else lengths
        directions = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}
        for d, sign in enumerate(directions[self.direction]):
            wb, rb = np.split(b[d], 2)
            peepholes = (None,) * 3 if p is None else np.split(p[d], 3)
            states = tuple(zeros if s is None else s[d] for s in initial)
            valid = np.arange(t).reshape(t, 1, 1) < lengths.reshape(n, 1)
            yield Pass(d, x, w[d], wb, r[d], rb, peepholes, states, valid, range(t)[::sign])

    def _unroll(self, run):
        """All outputs and the last states; for each time the states before, and the gates."""
        a = run.x @ run.w.T + run.wb
        y = np.zeros_like(run.x, shape=(len(run.x), *run.states[0].shape))
        states, memory = run.states, {}
        for t in run.times:
            after, gates = self.cell(a[t], states, run)
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
            da[t], du[t], dbefore, dp[t], multiplied[t] = self.cell_vjp(dnext, before, gates, run)
            dstates = tuple(
                np.where(valid, new, old) for new, old in zip(dbefore, dstates, strict=True)
            )
        dw = np.tensordot(da, run.x, ((0, 1), (0, 1)))
        dr = np.einsum("tngh,tngk->ghk", du.reshape(multiplied.shape), multiplied)
        db = np.concatenate((da.sum((0, 1)), du.sum((0, 1))))
        return da @ run.w, dw, dr.reshape(run.r.shape), db, dp.sum((0, 1))


@dataclass(frozen=True, kw_only=True, repr=False)
class RNN(Recurrent):
    """h' = f(a + R h + b). Elman 1990. ONNX RNN-22.

    `activations` names f for each direction: "Tanh" or "Relu". Axes: see `Recurrent`.
    """

    activations: tuple[str, ...] = ("Tanh", "Tanh")
    gates = 1

    def cell(self, a, states, run):
        (h,) = states
        z = a + h @ run.r.T + run.rb
        tanh = self.activations[run.direction] == "Tanh"
        return (np.tanh(z) if tanh else np.maximum(z, 0),), z

    def cell_vjp(self, dnext, states, gates, run):
        (dh,), (h,), z = dnext, states, gates
        tanh = self.activations[run.direction] == "Tanh"
        dz = dh * (1 - np.tanh(z) ** 2 if tanh else z > 0)
        return dz, dz, (dz @ run.r,), 0, np.expand_dims(h, 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class LSTM(Recurrent):
    """Long short-term memory with peepholes. Hochreiter and Schmidhuber 1997; Gers 2000.
    ONNX LSTM-22.

    i = s(a_i + R_i h + p_i c)    c' = f c + i g              s: the sigmoid
    f = s(a_f + R_f h + p_f c)    o = s(a_o + R_o h + p_o c')
    g = tanh(a_c + R_c h)         h' = o tanh(c')

    The gates' order in W, R and b is i, o, f, c, that of the peepholes p: (directions, 3 h) is
    i, o, f. Further inputs are initial_c and p; a further output is the last c. Axes: see
    `Recurrent`.
    """

    gates = 4
    states = 2

    def cell(self, a, states, run):
        h, c = states
        zi, zo, zf, zc = np.split(a + h @ run.r.T + run.rb, 4, -1)
        pi, po, pf = run.p
        i, f = self.gate(seen(zi, pi, c)), self.gate(seen(zf, pf, c))
        g = self.candidate(zc)
        c_next = f * c + i * g
        o = self.gate(seen(zo, po, c_next))
        return (o * np.tanh(c_next), c_next), (i, o, f, g, c_next)

    def cell_vjp(self, dnext, states, gates, run):
        (dh_next, dc_next), (h, c), (i, o, f, g, c_next) = dnext, states, gates
        pi, po, pf = run.p
        tanh_c = np.tanh(c_next)
        dzo = dh_next * tanh_c * o * (1 - o)
        dc_next = seen(dc_next + dh_next * o * (1 - tanh_c**2), po, dzo)
        dzi = dc_next * g * i * (1 - i)
        dzf = dc_next * c * f * (1 - f)
        dzc = dc_next * i * (1 - g**2)
        dz = np.concatenate((dzi, dzo, dzf, dzc), -1)
        dc = seen(seen(dc_next * f, pi, dzi), pf, dzf)
        dp = np.concatenate((dzi * c, dzo * c_next, dzf * c), -1)
        return dz, dz, (dz @ run.r, dc), dp, np.expand_dims(h, 1)


def seen(z, peephole, c):
    """z plus what it sees of c through a peephole; without one nothing, not even of infinity."""
    return z if peephole is None else z + peephole * c


@dataclass(frozen=True, kw_only=True, repr=False)
class GRU(Recurrent):
    """Gated recurrent unit. Cho et al. 2014. ONNX GRU-22.

    z = s(a_z + R_z h + b_z)      g = tanh(a_h + R_h (r h) + b_h)
    r = s(a_r + R_r h + b_r)      h' = (1 - z) g + z h

    With `linear_before_reset`, g = tanh(a_h + r (R_h h + b_h)). The gates' order in W, R and b is
    z, r, h. Axes: see `Recurrent`.
    """

    linear_before_reset: int = 0
    gates = 3

    def cell(self, a, states, run):
        (h,) = states
        first = [2 * h.shape[-1]]  # z and r, before h
        (azr, ah), (bzr, bh) = np.split(a, first, -1), np.split(run.rb, first)
        rzr, rh = np.split(run.r, first)
        z, r = np.split(self.gate(azr + h @ rzr.T + bzr), 2, -1)
        if self.linear_before_reset:
            u = h @ rh.T + bh
            g = self.candidate(ah + r * u)
        else:
            u = r * h
            g = self.candidate(ah + u @ rh.T + bh)
        return ((1 - z) * g + z * h,), (z, r, g, u)

    def cell_vjp(self, dnext, states, gates, run):
        (dh_next,), (h,), (z, r, g, u) = dnext, states, gates
        rz, rr, rh = np.split(run.r, 3)
        dzz = dh_next * (h - g) * z * (1 - z)
        dzg = dh_next * (1 - z) * (1 - g**2)
        if self.linear_before_reset:
            dr, du, multiplied = dzg * u, dzg * r, h
            dh = dh_next * z + du @ rh
        else:
            du, multiplied = dzg, u
            dreset = du @ rh
            dr, dh = dreset * h, dh_next * z + dreset * r
        dzr = dr * r * (1 - r)
        dh = dh + dzz @ rz + dzr @ rr
        da = np.concatenate((dzz, dzr, dzg), -1)
        return da, np.concatenate((dzz, dzr, du), -1), (dh,), 0, np.stack((h, h, multiplied), 1)
