"""What a wrong optimizer looks like: the usual mistakes, each as another rule that it would be.

A fault that says "looks like Adam with beta1 and beta2 exchanged" is half mended. A suspect is a
function from the step that was asked for to the step that the mistake makes of it; it is named if
the wrong result lies within that one's bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.case import Array
from d5test.reference.steps import STEPS, Step, step_of
from d5test.training.mistaken import MistakenAdam

MISTAKEN_ADAM: Any = step_of(MistakenAdam)


def having(*names: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorate a suspect that there is only where a rule has these hyperparameters, not zero."""

    def decorate(suspect: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def guarded(step: Any) -> Any:
            return suspect(step) if all(getattr(step, name, 0) != 0 for name in names) else step

        return guarded

    return decorate


def toggled(name: str) -> Callable[[Any], Any]:
    """A suspect that turns a variant on or off."""

    def suspect(step: Any) -> Any:
        return step.with_(**{name: not getattr(step, name)}) if hasattr(step, name) else step

    return suspect


def without(name: str) -> Callable[[Any], Any]:
    """A suspect that leaves a term out."""
    return having(name)(lambda step: step.with_(**{name: 0.0}))


def as_rule(name: str, other: str) -> Callable[[Any], Any]:
    """A suspect that applies another rule with the same hyperparameters."""

    def suspect(step: Any) -> Any:
        return STEPS[other](**step.attributes) if step.name == name else step

    return suspect


def in_adam(mistake: str) -> Callable[[Any], Any]:
    """A suspect that is wrong in a term of Adam and AdamW."""

    def suspect(step: Any) -> Any:
        if step.name not in ("Adam", "AdamW") or not step.bias_correction:
            return step
        return MISTAKEN_ADAM(**step.attributes, mistake=mistake)

    return suspect


def decayed_without_lr(step: Any) -> Any:
    """w - lambda w."""
    return step.with_(weight_decay=step.weight_decay / step.lr) if step.decoupled else step


SUSPECTS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "beta1 and beta2 exchanged": having("beta1", "beta2")(
            lambda step: step.with_(beta1=step.beta2, beta2=step.beta1)
        ),
        "the moments' bias not corrected": having("bias_correction")(
            lambda step: step.with_(bias_correction=False)
        ),
        "the first moment's bias not corrected": in_adam("first"),
        "the second moment's bias not corrected": in_adam("second"),
        "each moment corrected with the other's beta": in_adam("swapped"),
        "beta1 in the second moment too": having("beta1", "beta2")(
            lambda step: step.with_(beta2=step.beta1)
        ),
        "beta2 in the first moment too": having("beta1", "beta2")(
            lambda step: step.with_(beta1=step.beta2)
        ),
        "epsilon before the correction, or after it": toggled("epsilon_hat"),
        "epsilon on the other side of the root": toggled("epsilon_inside"),
        "epsilon under the root, of the corrected moment": in_adam("corrected"),
        "epsilon under the root, of the moment as it is": in_adam("uncorrected"),
        "no epsilon": without("epsilon"),
        "no weight decay": without("weight_decay"),
        "the other kind of decay": having("weight_decay")(toggled("decoupled")),
        "decay without lr": having("weight_decay")(decayed_without_lr),
        "no momentum": without("momentum"),
        "the gradient dampened by 1 - momentum": having("momentum")(
            lambda step: step.with_(dampening=step.momentum)
        ),
        "no dampening": without("dampening"),
        "lr on the other side of the velocity": toggled("lr_in_velocity"),
        "Momentum instead of Nesterov": as_rule("Nesterov", "Momentum"),
        "Nesterov instead of Momentum": as_rule("Momentum", "Nesterov"),
        "rho and 1 - rho exchanged": having("rho")(lambda step: step.with_(rho=1 - step.rho)),
        "steps counted from 0": lambda step: step.with_(t=step.t - 1) if step.t > 1 else step,
        "steps counted from 2": lambda step: step.with_(t=step.t + 1),
        "the sign of lr": lambda step: step.with_(lr=-step.lr),
        "the parameter not moved": lambda step: step.with_(lr=0.0),
    }
)
"""What the result looks like, and the step that would make it so."""


def suspects(step: Step) -> Iterator[tuple[str, Step]]:
    """The suspects that are another step than the one asked for."""
    for name, suspect in SUSPECTS.items():
        other = suspect(step)
        if other != step:
            yield name, other


def of_another_length(
    step: Step, start: Array, want: Array, got: Array
) -> tuple[str, Step] | None:
    """The step with the lr that its length would be explained by; `None` if there is none.

    `want` and `got` are the parameter after it, as it should be and as it is. The ratio is read
    where the parameter moves most for its size, so that rounding changes it least.
    """
    lr: float = step.attributes["lr"]
    moves = (want - start).ravel()
    with np.errstate(all="ignore"):
        far = np.nan_to_num(np.abs(moves / start.ravel()), posinf=0.0)
        if len(moves) < 2 or not far.max() > 0:
            return None
        i = int(np.argmax(far))
        times = float((got.ravel()[i] - start.ravel()[i]) / moves[i])
    if not np.isfinite(times) or times <= 0 or times == 1:
        return None
    told = f"a step {times:.6g} times as long, as with lr {lr * times:.6g}"
    return told, step.with_(lr=lr * times)
