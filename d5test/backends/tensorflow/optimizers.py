"""`keras.optimizers`, and the reference rules on TensorFlow's tensors.

Requirements: Keras on TensorFlow. Keras keeps the learning rate in its float type, which is set to
the parameters' dtype; it computes with hyperparameters in that dtype. Weights decay by themselves
in every optimizer, velocities hold the learning rate, and epsilon stands where it is cheapest:
under the root, or beside the root of the uncorrected moment.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import keras

from d5test.backends.base import Table, Unsupported
from d5test.backends.tensorflow.framework import tf
from d5test.backends.updater import (
    Kind,
    ReferenceUpdater,
    Slots,
    Updater,
    arguments,
    kind_of,
    one_step,
)


def optimizer(name: str, op: Any, **sources: Any) -> Any:
    usual = arguments(op, learning_rate="lr", weight_decay="weight_decay")
    return getattr(keras.optimizers, name)(**usual, **arguments(op, **sources))


momentum = partial(optimizer, "SGD", momentum="momentum")
adagrad = partial(optimizer, "Adagrad", initial_accumulator_value="accumulator", epsilon="epsilon")
ADAM_NAMES = {"beta_1": "beta1", "beta_2": "beta2", "epsilon": "epsilon"}
KINDS: Mapping[str, Kind] = {
    "GradientDescent": Kind(partial(optimizer, "SGD")),
    "Momentum": Kind(momentum, ("momentums",)),
    "Nesterov": Kind(partial(momentum, nesterov=True), ("momentums",)),
    "AdaGrad": Kind(adagrad, ("_accumulators",)),
    "RMSProp": Kind(partial(optimizer, "RMSprop", rho="rho", epsilon="epsilon"), ("_velocities",)),
    "Adam": Kind(partial(optimizer, "Adam", **ADAM_NAMES), ("_momentums", "_velocities")),
    "AdamW": Kind(partial(optimizer, "AdamW", **ADAM_NAMES), ("_momentums", "_velocities")),
    "AMSGrad": Kind(
        partial(optimizer, "Adam", amsgrad=True, **ADAM_NAMES),
        ("_momentums", "_velocities", "_velocity_hats"),
    ),
}
DECOUPLED = {"decoupled": True}
HEAVY_BALL = DECOUPLED | {"lr_in_velocity": True, "dampening": 0.0}
ADAM = DECOUPLED | {"epsilon_hat": True, "bias_correction": True}


class KerasUpdater(Updater):
    """An optimizer of `keras.optimizers` on variables of its own."""

    kinds: ClassVar[Mapping[str, Kind]] = KINDS
    fixed = {  # noqa: RUF012 (a table)
        "GradientDescent": DECOUPLED,
        "Momentum": HEAVY_BALL,
        "Nesterov": HEAVY_BALL,
        "AdaGrad": DECOUPLED | {"epsilon_inside": True, "lr_decay": 0.0},
        "RMSProp": DECOUPLED | {"epsilon_inside": True},
        "Adam": ADAM,
        "AdamW": ADAM,
        "AMSGrad": ADAM | {"largest_corrected": False},
    }

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        self._op = op
        (dtype,) = {w.dtype.name for w in parameters.values()}
        keras.config.set_floatx(dtype)
        self._variables = {name: keras.Variable(w, dtype=dtype) for name, w in parameters.items()}
        self._kind = kind_of(self, op)
        self._optimizer = self._kind.make(op)
        self._optimizer.build(list(self._variables.values()))

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: tf.convert_to_tensor(w.value) for name, w in self._variables.items()}

    def step(self, gradients: Mapping[str, Any]) -> None:
        variables = self._variables.values()
        self._optimizer.apply([gradients[name] for name in self._variables], list(variables))

    def scale_lr(self, factor: float, *names: str) -> None:
        if names:
            raise Unsupported("Keras has no groups of parameters")
        self._optimizer.learning_rate = self._optimizer.learning_rate * factor

    def resumed(self) -> "KerasUpdater":
        other, saved = type(self)(self._op, self.parameters), dict[str, Any]()
        self._optimizer.save_own_variables(saved)
        other.load(saved)
        return other

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from what an optimizer saved."""
        self._optimizer.load_own_variables(saved)

    def state(self) -> tuple[int, Slots]:
        slots = [getattr(self._optimizer, name) for name in self._kind.slots]
        return int(self._optimizer.iterations), {
            name: tuple(tf.convert_to_tensor(slot[i].value) for slot in slots)
            for i, name in enumerate(self._variables)
        }

    def restore(self, t: int, slots: Slots) -> None:
        self._optimizer.iterations.assign(t)
        for i, attribute in enumerate(self._kind.slots):
            variables = getattr(self._optimizer, attribute)
            for name, variable in zip(self._variables, variables, strict=True):
                variable.assign(slots[name][i])


class TensorFlowReference(ReferenceUpdater):
    """The reference rules on TensorFlow's tensors."""

    xp = tf


rows = Table()


@rows.native(*KINDS)
def step(op: Any, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
    return one_step(KerasUpdater, op, w, g, *slots)
