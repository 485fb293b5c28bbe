"""One step of an optimizer as an operator, so that it is drawn, judged and reproduced like any.

ONNX has such operators too (`ai.onnx.preview.training`). Inputs: a parameter, its gradient, the
slots of its state; outputs: the parameter and the slots after step `t`. The attributes are the
rule's hyperparameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from d5test.case import Operator
from d5test.reference.optimizers import OPTIMIZERS, Optimizer


@dataclass(frozen=True, kw_only=True, repr=False)
class Step(Operator):
    """Step number `t`, counted from 1, of the optimizer `rule`. A subclass is one rule."""

    domain = "d5test"
    rule: ClassVar[type[Optimizer]]
    t: int = 1

    def forward(self, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """(w, *slots) after the step; arrays of one shape."""
        return self.optimizer(like=w).apply(np, self.t, w, g, *slots)

    def optimizer(self, like: Any) -> Optimizer:
        """The rule, its numbers as arrays like `like`: computed with, and rounded, as those are.

        A zero switches a term off, and stays a plain zero.
        """
        hyperparameters: dict[str, Any] = {
            name: np.full_like(like, value, shape=())
            if isinstance(value, float) and value
            else value
            for name, value in self.attributes.items()
            if name != "t"
        }
        return self.rule(**hyperparameters)


def step_of(rule: type[Optimizer]) -> type[Step]:
    """The operator that is a step of `rule`, with its name and its hyperparameters."""
    return _step_of(rule)  # type: ignore[arg-type] # mypy: a class is not hashable


@cache
def _step_of(rule: type[Optimizer]) -> type[Step]:
    step: type[Step] = make_dataclass(
        rule.__name__,
        [(f.name, f.type, f.default) for f in fields(rule)],
        bases=(Step,),
        namespace={"rule": rule, "__doc__": rule.__doc__, "__module__": __name__},
        frozen=True,
        kw_only=True,
        repr=False,
    )
    return step


STEPS: Mapping[str, type[Step]] = {name: step_of(rule) for name, rule in OPTIMIZERS.items()}
"""A step of every rule, by the rule's name."""


def as_step(optimizer: Optimizer, t: int = 1) -> Step:
    """Step number `t` of an optimizer."""
    return step_of(type(optimizer))(t=t, **vars(optimizer))
