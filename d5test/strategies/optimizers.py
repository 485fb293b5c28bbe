"""Cases of one step of an optimizer: hyperparameters, gradients, and a state in full swing.

Hyperparameters are short binary fractions, exact in every dtype, so that a framework that keeps
them in double precision and one that keeps them in the parameters' precision compute the same. In
float64 both are one, and a learning rate may be 0.1, as it is in use.
"""

import math
from collections.abc import Callable
from typing import Any

from d5test.case import FLOATS, Tensor
from d5test.reference.steps import STEPS, Step
from d5test.strategies.draw import Draw, Regime
from d5test.strategies.registry import choices, drawable, inputs

TIMES = (1, 2, 3, 10, 100, 1000)
"""Step numbers: where the moments' correction is large, and where it fades."""
DECAYS = (0.875, 0.9375, 0.75)
SLOW = (*DECAYS, 0.9990234375)
"""Factors with which an average forgets; the last has more bits than bfloat16."""
EPSILONS = (2.0**-20, 2.0**-10, 2.0**-3)
RATES = (0.125, 0.0009765625, 0.5)


def rate(d: Draw) -> float:
    """A learning rate."""
    return d.choose((*RATES, 0.1, 0.003) if d.dtype == "float64" else RATES)


def decay(d: Draw) -> float:
    """A factor with which an average forgets."""
    return d.choose(DECAYS if d.dtype in FLOATS[2:] else SLOW)


HYPERPARAMETERS: dict[str, tuple[Any, ...] | Callable[[Draw], Any]] = {
    "lr": rate,
    "weight_decay": (0.0, 0.0625, 0.0078125),
    "decoupled": (False, True),
    "momentum": decay,
    "dampening": (0.0, 0.25),
    "lr_in_velocity": (False, True),
    "epsilon": EPSILONS,
    "epsilon_inside": (False, True),
    "epsilon_hat": (False, True),
    "accumulator": (0.0, 0.125),
    "lr_decay": (0.0, 0.0625),
    "rho": decay,
    "beta1": decay,
    "beta2": decay,
    "bias_correction": (True, False),
    "largest_corrected": (False, True),
}
"""What each hyperparameter may be, the simplest first, or what draws it."""

GRADIENTS: tuple[Regime, ...] = ("normal", "heavy", "onehot", ("scaled", -6), ("constant", 0.0))
SQUARES: tuple[Regime, ...] = ("positive", ("uniform", 0.0, 0.015625))
"""Averages and sums of squares, also some that epsilon is not small beside."""
SIGNED = frozenset({"velocity", "first", "momentum"})
"""Slots that average gradients; the others average their squares."""
BITS = 16
"""Of a hyperparameter that is exact in every dtype that optimizers are judged in."""


def exact(value: float) -> float:
    """The nearest number of so few bits: 0.99 stays below 1, and is the same in every dtype."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, BITS)), exponent - BITS)


def values_of(name: str, usual: Any) -> Any:
    """What a hyperparameter may be; of one that is not ours, its default and what is near it."""
    if name in HYPERPARAMETERS:
        return HYPERPARAMETERS[name]
    if isinstance(usual, bool):
        return usual, not usual
    return (exact(usual), exact(usual) / 2) if isinstance(usual, float) else (usual,)


def step_inputs(d: Draw, op: Step) -> tuple[Tensor | None, ...]:
    """A parameter, its gradient and its slots: of one shape. Before step 1 slots are fresh."""
    shape = d.shape(1, 3, empty=False)
    fresh: Regime = ("constant", op.attributes.get("accumulator", 0.0))
    slots = (
        d.tensor(shape, fresh)
        if op.t == 1
        else d.tensor(shape, *(GRADIENTS if name in SIGNED else SQUARES))
        for name in op.rule.slots
    )
    return (d.tensor(shape, "normal", "uniform"), d.tensor(shape, *GRADIENTS), *slots)


def register(operator: type[Step]) -> None:
    """Let steps of a rule be drawn; those of ours can be already."""
    if operator not in drawable():
        usual = {name: value for name, value in operator().attributes.items() if name != "t"}
        choices(operator, **{k: values_of(k, v) for k, v in usual.items()}, t=TIMES)
        inputs(operator)(step_inputs)


for operator in STEPS.values():
    register(operator)
