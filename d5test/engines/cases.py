"""What is trained, with which optimizer, and how a step is made.

Each case must bite: sequential runs with the usual mistakes (`d5test.engines.sequential`) must be
rejected by its bars. So hyperparameters are binary fractions that no dtype rounds; AdamW's epsilon
is large, since Adam's steps do not depend on the length of the gradient beside a small one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal, get_args

STEPS = 4
"""Momentum shows in the second step, and whatever is kept from step to step in the others."""
HALF = STEPS // 2
"""Steps before the checkpoint of a case that is resumed: moments differ from their first step."""
Model = Literal["mlp", "branched", "transformer", "experts", "residual", "batchnorm", "dropout"]
FEATURES = ("accumulate", "clip", "tied", "uneven", "resumed", "adamw", "decay", *get_args(Model))
"""Of cases, which an engine may lack. `decay` is that of SGD, in the gradient."""
DTYPES = ("float32", "float64")
BETWEEN = 0.0
"""The largest norm of a gradient that is clipped in some of the steps, and not in all: see
`Training.clip`."""
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
class Sizes:
    """Of a model and of its minibatches.

    Those of cases with a name can be split: `hidden` and `heads` are divisible by 2, 3 and 4.

    depth     children between the one that enters and the one that leaves
    inputs    numbers of a sample of a perceptron
    width     numbers between two children
    hidden    numbers within a pair of layers
    classes   among which a sample is
    words     that a transformer knows
    length    words of a sample
    heads     of attention
    experts   of a mixture
    channels  of the first convolution
    side      of an image
    own       samples of a rank, in a joined minibatch that is even
    """

    depth: int = 2
    inputs: int = 7
    width: int = 10
    hidden: int = 24
    classes: int = 5
    words: int = 11
    length: int = 6
    heads: int = 12
    experts: int = 3
    channels: int = 6
    side: int = 7
    own: int = 4


@dataclass(frozen=True)
class Case:
    """A training of a few steps.

    options     of the optimizer, beside and instead of those of `OPTIMIZERS`
    seed        of parameters and samples
    accumulate  parts in which a rank takes its share, one after the other
    clip        the largest norm of the gradient of all parameters, or `BETWEEN`
    tied        whether two modules share a weight
    uneven      whether ranks have different numbers of samples in some steps
    resumed     whether half of the steps are made by a fresh engine, from a checkpoint
    """

    name: str
    model: Model = "mlp"
    optimizer: str = "SGD"
    sizes: Sizes = Sizes()
    options: tuple[tuple[str, Any], ...] = ()
    seed: int = 1
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
            "decay": self.optimizer == "SGD" and "weight_decay" in dict(self.options),
        }
        return (*(name for name, wanted in asked.items() if wanted), self.model)

    def samples(self, step: int, ranks: int) -> int:
        """Of the joined minibatch of a step."""
        return self.sizes.own * ranks - (self.uneven and step % 2)

    @property
    def about(self) -> str:
        """All that it does not have in common with the simplest case, in words."""
        plain = Case(self.name)
        return ", ".join(
            [self.model, self.optimizer]
            + [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
               for name, value in self.options]
            + _differing(self.sizes, plain.sizes)
            + _differing(self, plain, ("seed", "accumulate"))
            + ["clipped"] * (self.clip < inf)
            + _differing(self, plain, ("tied", "uneven", "resumed"))
        )  # fmt: skip

    def __repr__(self) -> str:
        return self.name


def _differing(one: Any, plain: Any, names: Sequence[str] = ()) -> list[str]:
    """Fields that are not those of another one."""
    return [
        name if value is True else f"{name} {value:g}"
        for name in names or (field.name for field in fields(one))
        if (value := getattr(one, name)) != getattr(plain, name)
    ]


SQUARE = Sizes(width=24)
"""Weights that may be transposed unseen by their shapes."""
_ROWS = (
    Case("mlp-sgd"),
    Case("mlp-adamw", optimizer="AdamW"),
    Case("mlp-accumulated", accumulate=3, sizes=Sizes(own=6)),
    Case("mlp-clipped", clip=BETWEEN),
    Case("mlp-tied", tied=True),
    Case("mlp-tied-clipped", tied=True, clip=BETWEEN, options=(("weight_decay", 2.0**-4),)),
    Case("mlp-uneven", uneven=True),
    Case("mlp-unused", "branched"),
    Case("mlp-resumed-sgd", resumed=True, sizes=SQUARE),
    Case("mlp-resumed-adamw", optimizer="AdamW", resumed=True, sizes=SQUARE),
    Case("mlp-resumed-unused", "branched", "AdamW", resumed=True),
    Case("deep-sgd", sizes=Sizes(depth=6)),
    Case("transformer-sgd", "transformer"),
    Case("transformer-uneven", "transformer", accumulate=2, uneven=True),
    Case("transformer-adamw", "transformer", "AdamW"),
    Case("experts-sgd", "experts"),
    Case("residual-sgd", "residual"),
    Case("batchnorm-sgd", "batchnorm"),
    Case("dropout-sgd", "dropout", accumulate=2),
)
CASES: Mapping[str, Case] = {case.name: case for case in _ROWS}
USUAL = ("mlp-sgd", "mlp-clipped")
"""Those of a run that names no engine, in float32."""
