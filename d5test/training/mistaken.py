"""Rules that are wrong in one term which no hyperparameter turns on or off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.reference.optimizers import Adam


@dataclass(frozen=True, kw_only=True)
class MistakenAdam(Adam):
    """Adam with `mistake`: `first`, `second`, `corrected`, `uncorrected` or `swapped`.

    first        the first moment alone is used as if it had not started at zero
    second       the second moment alone
    corrected    epsilon stands under the root, beside the corrected moment: sqrt(v' + epsilon)
    uncorrected  it stands there, beside the moment as it is: sqrt(v + epsilon) / sqrt(1 - beta2^t)
    swapped      the moments are corrected with each other's beta
    """

    mistake: str = ""

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """Two slots: m, v."""
        m, v = slots
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * (g * g)
        betas = self.beta1, self.beta2
        first, second = (1 - beta**t for beta in (betas[::-1] if self.wrong("swapped") else betas))
        step = self.lr * m if self.wrong("first") else self.lr * (m / first)
        if self.wrong("second"):
            root = xp.sqrt(v) + self.epsilon
        elif self.wrong("corrected"):
            root = xp.sqrt(v / second + self.epsilon)
        elif self.wrong("uncorrected"):
            root = xp.sqrt(v + self.epsilon) / np.sqrt(second)
        elif self.epsilon_hat:
            root = (xp.sqrt(v) + self.epsilon) / np.sqrt(second)
        else:
            root = xp.sqrt(v / second) + self.epsilon
        return w - step / root, m, v

    def wrong(self, what: str) -> bool:
        """Whether this is the mistake."""
        return self.mistake == what
