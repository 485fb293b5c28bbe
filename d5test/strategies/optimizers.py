"""Cases of one step of an optimizer: hyperparameters, gradients, and a state in full swing.

Hyperparameters are short binary fractions, exact in every dtype, so that a framework that keeps
them in double precision and one that keeps them in the parameters' precision compute the same.
"""

from __future__ import annotations

from typing import Any

from d5test.case import Tensor
from d5test.reference.steps import STEPS, Step
from d5test.strategies.draw import Draw, Regime
from d5test.strategies.registry import attributes, inputs

TIMES = (1, 2, 3, 10, 100, 1000)
"""Step numbers: where the moments' correction is large, and where it fades."""
DECAYS = (0.875, 0.9375, 0.75, 0.9990234375)
"""Factors with which an average forgets."""
EPSILONS = (2.0**-20, 2.0**-10, 2.0**-3)
HYPERPARAMETERS: dict[str, tuple[Any, ...]] = {
    "lr": (0.125, 0.0009765625, 0.5),
    "weight_decay": (0.0, 0.0625, 0.0078125),
    "decoupled": (False, True),
    "momentum": DECAYS,
    "dampening": (0.0, 0.25),
    "lr_in_velocity": (False, True),
    "epsilon": EPSILONS,
    "epsilon_inside": (False, True),
    "epsilon_hat": (False, True),
    "accumulator": (0.0, 0.125),
    "lr_decay": (0.0, 0.0625),
    "rho": DECAYS,
    "beta1": DECAYS,
    "beta2": DECAYS,
    "bias_correction": (True, False),
}
"""What each hyperparameter may be; the first is the simplest."""

GRADIENTS: tuple[Regime, ...] = ("normal", "heavy", "onehot", ("scaled", -6))
SQUARES: tuple[Regime, ...] = ("positive", ("uniform", 0.0, 0.015625))
"""Averages and sums of squares, also some that epsilon is not small beside."""
SIGNED = frozenset({"velocity", "first"})
"""Slots that average gradients; the others average their squares."""


def step_attributes(operator: type[Step]) -> Any:
    """How the hyperparameters of a rule are drawn."""

    def draw(d: Draw) -> Step:
        given = {
            name: d.choose(HYPERPARAMETERS[name]) for name in operator().attributes if name != "t"
        }
        return operator(t=d.choose(TIMES), **given)

    return draw


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


for operator in STEPS.values():
    attributes(operator)(step_attributes(operator))
    inputs(operator)(step_inputs)
