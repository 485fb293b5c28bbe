"""What is trained, with which optimizer, and how a step is made.

Each case must bite: sequential runs with the usual mistakes (`d5test.engines.sequential`) must be
rejected by its bars. So hyperparameters are binary fractions that no dtype rounds; AdamW's epsilon
is large, since Adam's steps do not depend on the length of the gradient beside a small one; and
clipping bites in some of the steps, not in all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

STEPS = 4
"""Momentum shows in the second step, and whatever is kept from step to step in the others."""
HALF = STEPS // 2
"""Steps before the checkpoint of a case that is resumed: moments differ from their first step."""
OWN = 4
"""Samples of a rank, in a joined minibatch that is even."""
DTYPES = ("float32", "float64")
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"lr": 0.125, "momentum": 0.875},
    "AdamW": {"lr": 2.0**-6, "betas": (0.875, 0.984375), "eps": 2.0**-6, "weight_decay": 2.0**-7},
}
"""Those of `torch.optim`, with their options."""
SLOTS: Mapping[str, tuple[str, ...]] = {
    "SGD": ("momentum_buffer",),
    "AdamW": ("exp_avg", "exp_avg_sq", "step"),
}
"""What each keeps of a parameter from step to step."""


@dataclass(frozen=True)
class Case:
    """A training of a few steps.

    accumulate  parts in which a rank takes its share, one after the other
    clip        the largest norm of the gradient of all parameters
    tied        whether two modules share a weight
    uneven      whether ranks have different numbers of samples in some steps
    resumed     whether half of the steps are made by a fresh engine, from a checkpoint
    """

    name: str
    model: Literal[
        "mlp", "deep", "branched", "transformer", "experts", "residual", "batchnorm"
    ] = "mlp"
    optimizer: str = "SGD"
    accumulate: int = 1
    clip: float = inf
    tied: bool = False
    uneven: bool = False
    resumed: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """What an engine may lack."""
        asked = {
            "accumulate": self.accumulate > 1,
            "clip": self.clip < inf,
            "tied": self.tied,
            "uneven": self.uneven,
            "resumed": self.resumed,
            "adamw": self.optimizer == "AdamW",
        }
        return (*(name for name, wanted in asked.items() if wanted), self.model)

    def samples(self, step: int, ranks: int) -> int:
        """Of the joined minibatch of a step."""
        return OWN * ranks - (self.uneven and step % 2)

    def __repr__(self) -> str:
        return self.name


_ROWS = (
    Case("mlp-sgd"),
    Case("mlp-adamw", optimizer="AdamW"),
    Case("mlp-accumulated", accumulate=2),
    Case("mlp-clipped", clip=0.9),
    Case("mlp-tied", tied=True),
    Case("mlp-uneven", uneven=True),
    Case("mlp-unused", "branched"),
    Case("mlp-resumed-sgd", resumed=True),
    Case("mlp-resumed-adamw", optimizer="AdamW", resumed=True),
    Case("deep-sgd", "deep"),
    Case("transformer-sgd", "transformer"),
    Case("transformer-adamw", "transformer", "AdamW"),
    Case("experts-sgd", "experts"),
    Case("residual-sgd", "residual"),
    Case("batchnorm-sgd", "batchnorm"),
)
CASES: Mapping[str, Case] = {case.name: case for case in _ROWS}
USUAL = ("mlp-sgd", "mlp-clipped")
"""Those of a run that names no engine, in float32."""
