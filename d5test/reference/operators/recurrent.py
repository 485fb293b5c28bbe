"""Recurrent layers: each is a cell, one step of which follows, and its gradient.

In each cell `a` is the product of the step's input with W, biases of W added; the states' product
with R is added here. `cell_vjp` returns the gradients of `a`, of the products with R, of the
states and of the peepholes, and what each gate's part of R was multiplied with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit as sigmoid

from d5test.reference.operators.unrolling import Recurrent

__all__ = ["GRU", "LSTM", "RNN"]


@dataclass(frozen=True, kw_only=True, repr=False)
class RNN(Recurrent):
    """h' = f(a + R h + b). Elman 1990. ONNX RNN-22.

    `activations` names f for each direction: "Tanh" or "Relu". Axes: see `Recurrent`.
    """

    activations: tuple[str, ...] = ("Tanh", "Tanh")
    gates = 1

    def activation(self, direction):
        return self.activations[direction]

    def cell(self, a, states, weights):
        (h,) = states
        z = a + h @ weights.r.T + weights.rb
        return (np.tanh(z) if weights.activation == "Tanh" else np.maximum(z, 0),), z

    def cell_vjp(self, dnext, states, gates, weights):
        (dh,), (h,), z = dnext, states, gates
        dz = dh * (1 - np.tanh(z) ** 2 if weights.activation == "Tanh" else z > 0)
        return dz, dz, (dz @ weights.r,), 0, np.expand_dims(h, 1)


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

    def cell(self, a, states, weights):
        h, c = states
        zi, zo, zf, zc = np.split(a + h @ weights.r.T + weights.rb, 4, -1)
        pi, po, pf = np.split(weights.p, 3)
        i, f, g = sigmoid(zi + pi * c), sigmoid(zf + pf * c), np.tanh(zc)
        c_next = f * c + i * g
        o = sigmoid(zo + po * c_next)
        return (o * np.tanh(c_next), c_next), (i, o, f, g, c_next)

    def cell_vjp(self, dnext, states, gates, weights):
        (dh_next, dc_next), (h, c), (i, o, f, g, c_next) = dnext, states, gates
        pi, po, pf = np.split(weights.p, 3)
        tanh_c = np.tanh(c_next)
        dzo = dh_next * tanh_c * o * (1 - o)
        dc_next = dc_next + dh_next * o * (1 - tanh_c**2) + dzo * po
        dzi = dc_next * g * i * (1 - i)
        dzf = dc_next * c * f * (1 - f)
        dzc = dc_next * i * (1 - g**2)
        dz = np.concatenate((dzi, dzo, dzf, dzc), -1)
        dc = dc_next * f + dzi * pi + dzf * pf
        dp = np.concatenate((dzi * c, dzo * c_next, dzf * c), -1)
        return dz, dz, (dz @ weights.r, dc), dp, np.expand_dims(h, 1)


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

    def cell(self, a, states, weights):
        (h,) = states
        (az, ar, ah), (bz, br, bh) = np.split(a, 3, -1), np.split(weights.rb, 3)
        rz, rr, rh = np.split(weights.r, 3)
        z, r = sigmoid(az + h @ rz.T + bz), sigmoid(ar + h @ rr.T + br)
        if self.linear_before_reset:
            u = h @ rh.T + bh
            g = np.tanh(ah + r * u)
        else:
            u = r * h
            g = np.tanh(ah + u @ rh.T + bh)
        return ((1 - z) * g + z * h,), (z, r, g, u)

    def cell_vjp(self, dnext, states, gates, weights):
        (dh_next,), (h,), (z, r, g, u) = dnext, states, gates
        rz, rr, rh = np.split(weights.r, 3)
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
