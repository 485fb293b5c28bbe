"""What frameworks' optimizers document to do differently from the papers: a named row each.

A difference is a hyperparameter of the reference (`d5test.reference.optimizers`) with the value
that the framework has in its place: `variant` asks the backend which. The framework is judged
against that variant, and by the name of the row everybody knows which one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from d5test.reference.optimizers import OPTIMIZERS


@dataclass(frozen=True)
class Difference:
    """A hyperparameter whose value, where it is not the paper's, has a name of its own."""

    name: str
    meaning: str


DIFFERENCES: Mapping[str, Difference] = MappingProxyType(
    {
        "decoupled": Difference(
            "decoupled decay", "weights decay by lr lambda w, not through the gradient"
        ),
        "lr_in_velocity": Difference(
            "velocity in steps", "the velocity holds lr: a new lr does not reach older gradients"
        ),
        "epsilon_inside": Difference(
            "epsilon under the root", "sqrt(v + epsilon) instead of sqrt(v) + epsilon"
        ),
        "epsilon_hat": Difference(
            "epsilon before the correction",
            "epsilon is added to the root of the uncorrected second moment",
        ),
        "bias_correction": Difference(
            "no bias correction", "the moments are used as if they had not started at zero"
        ),
        "weight_decay": Difference("no decay", "the optimizer has no weight decay of its own"),
        "dampening": Difference("no dampening", "the velocity takes the whole gradient"),
        "lr_decay": Difference("no decay of lr", "the learning rate stays as it is"),
    }
)


def variant(client: Any, rule: str) -> dict[str, Any]:
    """The hyperparameters that a backend's own optimizer has not, with what it does instead."""
    found: dict[str, Any] = client.invoke("d5test.backends.updater:variant", rule)
    return found


def differences(client: Any, rule: str) -> dict[str, Difference]:
    """How a backend's own optimizer differs from the paper, by hyperparameter."""
    usual = {f.name: f.default for f in fields(OPTIMIZERS[rule])}
    return {
        name: DIFFERENCES[name]
        for name, value in variant(client, rule).items()
        if value != usual[name]
    }
