"""Keras, which has one backend in a process, that of its first import; and its optimizers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import sqrt
from typing import Any

from d5test.backends.base import Unsupported
from d5test.engines.engine import Rule
from d5test.engines.functional import Update


def imported() -> Any:
    """Keras, as the process has it."""
    import keras

    return keras


def prefer(backend: str) -> None:
    """Import Keras with this backend, unless it is imported already. The environment is as before.

    TensorFlow imports Keras, too: whoever wants another backend must be imported before.
    """
    if "keras" in sys.modules:
        return
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = backend
    try:
        imported()
    finally:
        if before is None:
            del os.environ["KERAS_BACKEND"]
        else:
            os.environ["KERAS_BACKEND"] = before


def demand(backend: str) -> Any:
    """Keras with this backend. Raises `Unsupported` if the process has it with another one."""
    prefer(backend)
    keras = imported()
    has = keras.backend.backend()
    if has != backend:
        raise Unsupported(
            f"Keras has the backend {has} in this process, and needs {backend} here: "
            "name the engines of one of them in a run of its own"
        )
    return keras


DECAY = "Keras' SGD decays weights beside its step, and PyTorch's in the gradient"


class Optimizer:
    """One of Keras, which does what one of PyTorch does.

    Its velocity holds the learning rate, which is constant here: that is the same motion. AdamW
    adds epsilon to the root of the uncorrected moment, so that epsilon is corrected in each step.
    Hyperparameters are kept in the parameters' dtype: Keras has to be set to it.
    """

    def __init__(self, rule: Rule, dtype: str, **more: Any) -> None:
        keras = imported()
        keras.config.set_floatx(dtype)
        self.update, self.taken, self.epsilon = Update.of(rule), 0, None
        o = rule.options
        if self.update.kind == "SGD":
            self.made = keras.optimizers.SGD(o["lr"], momentum=o["momentum"], **more)
            return
        beta_1, beta_2 = o["betas"]
        self.made = keras.optimizers.AdamW(
            o["lr"], weight_decay=o["weight_decay"], beta_1=beta_1, beta_2=beta_2, **more
        )
        self.epsilon = self.made.epsilon = self.made.add_variable((), dtype=dtype, name="epsilon")

    def prepare(self) -> None:
        """The next step comes."""
        self.taken += 1
        if self.epsilon is not None:
            _, correction = self.update.corrections(self.taken)
            self.epsilon.assign(self.update.options["eps"] * sqrt(correction))

    @property
    def slots(self) -> Sequence[Any]:
        """One of each parameter."""
        name = "momentums" if self.update.kind == "SGD" else "_momentums"
        slots: Sequence[Any] = getattr(self.made, name)
        return slots
