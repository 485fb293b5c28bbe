"""One iteration of an optimizer as a node, without a gradient: ONNX's preview of training.

The optimizers of level 2 are the same mathematics (`d5test.reference.optimizers`), which has their
names; a node here is called after its type, `AdamUpdate` after Adam.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from d5test.case import Operator

__all__ = ["AdagradUpdate", "AdamUpdate", "MomentumUpdate"]


class Update(Operator):
    """r: (), the learning rate; t: () int64, the updates before this one; tensors: n of any shapes
    that are optimized, their n gradients, and as many of each kind that is remembered of them.

    Outputs: the n tensors and what is remembered, after the update. `norm_coefficient` is the
    factor of L2 regularisation.
    """

    domain = "ai.onnx.preview.training"
    kinds: ClassVar[int] = 1
    """Of what is remembered."""

    def forward(self, r, t, *tensors):
        n = len(tensors) // (2 + self.kinds)
        updated = [self.update(r, int(t), *tensors[i::n]) for i in range(n)]
        return tuple(after for kind in zip(*updated, strict=True) for after in kind)

    def update(self, r, t, x, g, *remembered):
        """One tensor, and what is remembered of it, after the update."""
        raise NotImplementedError(f"{self.name} says no `update(r, t, x, g, ...)`")


def rounded(r, *attributes):
    """Attributes that are computed with, and rounded, as the learning rate is."""
    return (np.full_like(r, value, shape=()) for value in attributes)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdagradUpdate(Update):
    """h + g^2, x - r / (1 + t decay_factor) g / (sqrt(h) + epsilon). ONNX Adagrad-1.

    Duchi, Hazan and Singer, JMLR 12 (2011). Remembered: h, the sums of squared gradients.
    """

    decay_factor: float = 0.0
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    op_type = "Adagrad"

    def update(self, r, t, x, g, h):
        (decay,) = rounded(r, self.decay_factor)
        g = self.norm_coefficient * x + g
        h = h + g * g
        return x - r / (1 + t * decay) * g / (np.sqrt(h) + self.epsilon), h


@dataclass(frozen=True, kw_only=True, repr=False)
class AdamUpdate(Update):
    """alpha v + (1 - alpha) g, beta h + (1 - beta) g^2, x - r' v / (sqrt(h) + epsilon), with
    r' = r sqrt(1 - beta^t) / (1 - alpha^t), or r if t = 0. ONNX Adam-1.

    Kingma and Ba, arXiv 1412.6980, section 2. Remembered: v and h, the moments of the gradient.
    `norm_coefficient_post` is the share by which the new x shrinks.
    """

    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0
    op_type = "Adam"
    kinds = 2

    def update(self, r, t, x, g, v, h):
        alpha, beta, post = rounded(r, self.alpha, self.beta, self.norm_coefficient_post)
        g = self.norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        if t > 0:
            r = r * np.sqrt(1 - beta**t) / (1 - alpha**t)
        return (1 - post) * (x - r * v / (np.sqrt(h) + self.epsilon)), v, h


@dataclass(frozen=True, kw_only=True, repr=False)
class MomentumUpdate(Update):
    """alpha v + beta g, x - r v; with `mode` "nesterov" x - r (g + alpha v). ONNX Momentum-1.

    Polyak, USSR Comp. Math. Math. Phys. 4 (1964). Remembered: v. In the first update, t = 0, beta
    is 1.
    """

    alpha: float
    beta: float
    mode: str
    norm_coefficient: float
    op_type = "Momentum"

    def update(self, r, t, x, g, v):
        g = self.norm_coefficient * x + g
        v = self.alpha * v + (self.beta if t > 0 else 1.0) * g
        return x - r * (g + self.alpha * v if self.mode == "nesterov" else v), v
