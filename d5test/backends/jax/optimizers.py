"""Optax, and the reference rules on jax's arrays.

Requirements: a step is compiled when it is taken again and again; the row of one step is not.
Optax is imported when it is asked for: jax works without it. Of its optimizers only adamw has a
weight decay; adagrad and rmsprop have epsilon under the root, rmsprop has it outside on request.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

from d5test.backends.base import Table, Unsupported
from d5test.backends.jax.framework import jax, jnp
from d5test.backends.updater import (
    Kind,
    ReferenceUpdater,
    Slots,
    Updater,
    arguments,
    kind_of,
    one_step,
)
from d5test.reference.optimizers import State


def optimizer(name: str, optax: Any, op: Any, **sources: Any) -> Any:
    return getattr(optax, name)(**arguments(op, learning_rate="lr", **sources))


momentum = partial(optimizer, "sgd", momentum="momentum")
adagrad = partial(optimizer, "adagrad", initial_accumulator_value="accumulator", eps="epsilon")
rmsprop = partial(optimizer, "rmsprop", decay="rho", eps="epsilon", eps_in_sqrt="epsilon_inside")
ADAM_NAMES = {"b1": "beta1", "b2": "beta2", "eps": "epsilon"}
KINDS: Mapping[str, Kind] = {
    "GradientDescent": Kind(partial(optimizer, "sgd")),
    "Momentum": Kind(momentum, ("trace",)),
    "Nesterov": Kind(partial(momentum, nesterov=True), ("trace",)),
    "AdaGrad": Kind(adagrad, ("sum_of_squares",)),
    "RMSProp": Kind(rmsprop, ("nu",)),
    "Adam": Kind(partial(optimizer, "adam", **ADAM_NAMES), ("mu", "nu")),
    "AdamW": Kind(
        partial(optimizer, "adamw", **ADAM_NAMES, weight_decay="weight_decay"), ("mu", "nu")
    ),
    "AMSGrad": Kind(partial(optimizer, "amsgrad", **ADAM_NAMES), ("mu", "nu", "nu_max")),
}
UNDECAYED = {"weight_decay": 0.0}
HEAVY_BALL = UNDECAYED | {"lr_in_velocity": False, "dampening": 0.0}
ADAM = {"epsilon_hat": False, "bias_correction": True}


class OptaxUpdater(Updater):
    """A transformation of Optax, function by function.

    Every whole number of its state is the number of steps.
    """

    stuck = "optax.adagrad does not move where the square of a gradient underflows in float16"

    kinds: ClassVar[Mapping[str, Kind]] = KINDS
    fixed = {  # noqa: RUF012 (a table)
        "GradientDescent": UNDECAYED,
        "Momentum": HEAVY_BALL,
        "Nesterov": HEAVY_BALL,
        "AdaGrad": UNDECAYED | {"epsilon_inside": True, "lr_decay": 0.0},
        "RMSProp": UNDECAYED,
        "Adam": UNDECAYED | ADAM,
        "AdamW": {"decoupled": True} | ADAM,
        "AMSGrad": UNDECAYED | ADAM | {"largest_corrected": True},
    }

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        try:
            self._optax: Any = import_module("optax")
        except ImportError:
            raise Unsupported("jax's optimizers are Optax's: pip install optax") from None
        short = any(w.dtype == jnp.float16 for w in parameters.values())
        if op.name == "AdaGrad" and short and self._optax.__version__.startswith("0.2."):
            raise Unsupported(f"known failure: {self.stuck}")
        self._kind = kind_of(self, op)
        self._transformation = self._kind.make(self._optax, op)
        self._parameters = dict(parameters)
        self._state = self._transformation.init(self._parameters)
        self._t = 0

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    def stepped(self, parameters: Any, gradients: Any, state: Any) -> tuple[Any, Any]:
        """One step as a pure function."""
        updates, state = self._transformation.update(gradients, state, parameters)
        return self._optax.apply_updates(parameters, updates), state

    def step(self, gradients: Mapping[str, Any]) -> None:
        self._parameters, self._state = self.stepped(
            self._parameters, dict(gradients), self._state
        )
        self._t += 1

    def state(self) -> tuple[int, Slots]:
        slots = [self._optax.tree.get(self._state, name) for name in self._kind.slots]
        return self._t, {name: tuple(slot[name] for slot in slots) for name in self._parameters}

    def restore(self, t: int, slots: Slots) -> None:
        fields: dict[str, Any] = {
            field: {name: slots[name][i] for name in self._parameters}
            for i, field in enumerate(self._kind.slots)
        }
        if fields:
            self._state = self._optax.tree.set(self._state, **fields)
        self._state = jax.tree.map(partial(_counted, t), self._state)
        self._t = t


def _counted(t: int, leaf: Any) -> Any:
    """A leaf of a state after `t` steps: a whole number counts them."""
    if jnp.ndim(leaf) or not jnp.issubdtype(jnp.result_type(leaf), jnp.integer):
        return leaf
    dtype = jnp.result_type(leaf)
    return jnp.asarray(min(t, jnp.iinfo(dtype).max), dtype)


class OptaxCompiled(OptaxUpdater):
    """A transformation of Optax, a step compiled whole."""

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        self.stepped = jax.jit(super().stepped)  # type: ignore[method-assign]


class JaxReference(ReferenceUpdater):
    """The reference rules on jax's arrays, a step compiled whole."""

    xp: ClassVar[Any] = jnp

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        self._stepped = jax.jit(self._pure)

    def scale_lr(self, factor: float, *names: str) -> None:
        super().scale_lr(factor, *names)
        self._stepped = jax.jit(self._pure)  # the rule is compiled into it

    def _pure(self, t: Any, parameters: Any, gradients: Any, slots: Any) -> tuple[Any, Any]:
        new, state = self.rule.update(self.xp, parameters, gradients, State(t, slots))
        return new, state.slots

    def step(self, gradients: Mapping[str, Any]) -> None:
        t, slots = self._state.t, self._state.slots
        self._parameters, slots = self._stepped(t, self._parameters, dict(gradients), slots)
        self._state = State(t + 1, slots)


rows = Table()


@rows.native(*KINDS)
def step(op: Any, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
    return one_step(OptaxUpdater, op, w, g, *slots)
