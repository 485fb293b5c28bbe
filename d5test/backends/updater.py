"""What a backend's optimizers owe: an optimizer at work on named parameters, step by step.

    updater = backend.updaters["native"](op, {"w": w})
    updater.step({"w": g})
    updater.parameters["w"]

`op` has the name and the hyperparameters of a rule of `d5test.reference.optimizers`, whose slots
an updater reads and writes, whatever the framework calls them. It raises `Unsupported` for a
variant of the rule that it does not compute. A rule of a user's own comes with its updaters, and
a variable says in which files such rules are. Nothing is imported here that a framework does not
have beside it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from d5test.backends.base import Backend, Row, Unsupported
from d5test.names import load, target_of
from d5test.reference.optimizers import OPTIMIZERS, Optimizer, State

if TYPE_CHECKING:
    from typing import Self  # a worker's Python 3.10 has none

Slots = Mapping[str, tuple[Any, ...]]
OWN = "D5TEST_OPTIMIZERS"
"""The variable with the targets of rules that are a user's own, by commas."""


def environment(rules: Iterable[type[Optimizer]]) -> dict[str, str]:
    """The variables of a worker in which these rules are known."""
    own = [rule for rule in rules if rule is not OPTIMIZERS.get(rule.__name__)]
    return {OWN: ",".join(map(target_of, own))} if own else {}


def own_rules(environ: Mapping[str, str] = os.environ) -> dict[str, type[Optimizer]]:
    """The rules that this process, or one with these variables, was told of, by name."""
    rules = (load(target) for target in environ.get(OWN, "").split(",") if target)
    return {rule.__name__: rule for rule in rules}


def updater_of(backend: Backend, kind: str, rule: str) -> type[Updater]:
    """The updater of a kind, as `native` or `reference`, for a rule. Raises `Unsupported`."""
    updater: Any = backend.updaters.get(kind)
    own = own_rules().get(rule)
    follows = isinstance(updater, type) and issubclass(updater, ReferenceUpdater)
    if own is None or (updater is not None and (follows or kind == "reference")):
        if updater is None:
            raise Unsupported(f"{backend.framework} has no {kind} optimizers here")
        return updater  # type: ignore[no-any-return]
    if kind != "native":
        raise Unsupported(f"{rule} has no {kind} implementation")
    if backend.framework not in own.implementations:
        has = ", ".join(own.implementations) or "none"
        raise Unsupported(f"{rule} is not implemented in {backend.framework}; it has: {has}")
    return own.implementations[backend.framework]()  # type: ignore[no-any-return]


def with_own_rules(backend: Backend) -> Backend:
    """The backend, with rows for the rules that this process was told of."""
    rows = {}
    for rule in own_rules():
        try:
            rows[rule] = Row(partial(one_step, updater_of(backend, "native", rule)))
        except Unsupported:  # no row, and the suite says so
            continue
    if rows:
        backend.rows = {**backend.rows, **rows}  # type: ignore[misc]
    return backend


class Updater(ABC):
    """Named parameters, and the optimizer that changes them."""

    fixed: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By rule, the hyperparameters that the framework's own has not, with what it does instead."""
    skips_absent: ClassVar[bool] = False
    """Whether it documents that a parameter without a gradient is left alone in a step: its slots,
    and the number of its steps."""
    overwrites: ClassVar[bool] = False
    """Whether it documents that a gradient is another one after a step."""
    spoils: ClassVar[Mapping[str, str]] = {}
    """By rule, what is known of it where a gradient is another one after a step."""
    misreads: ClassVar[str] = ""
    """What is known of it where a gradient is not laid out in memory as its parameter is."""

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        for name, value in self.fixed.get(op.name, {}).items():
            if getattr(op, name) != value:
                raise Unsupported(
                    f"{op.name} has {name}={value!r} here, not {getattr(op, name)!r}"
                )

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The tensors as they are now. They may be overwritten by the next step."""

    @abstractmethod
    def step(self, gradients: Mapping[str, Any]) -> None:
        """One step, with a gradient for each parameter, or for some where it `skips_absent`."""

    def scale_lr(self, factor: float, *names: str) -> None:
        """Multiply the learning rate from the next step on, as a schedule does.

        Of some parameters alone, where parameters have groups of their own.
        """
        whose = "a group's" if names else "its"
        raise Unsupported(f"{whose} learning rate cannot be changed")

    def resumed(self) -> Self:
        """A new one that goes on from a checkpoint of this one, made as users make it."""
        raise Unsupported("its checkpoints are not the framework's")

    @abstractmethod
    def state(self) -> tuple[int, Slots]:
        """The steps taken, and the slots of each parameter, as tensors."""

    @abstractmethod
    def restore(self, t: int, slots: Slots) -> None:
        """Go on as if `t` steps had been taken and had left these slots. They may be adopted."""


class ReferenceUpdater(Updater):
    """The reference rule on the framework's own tensors, `xp` being the module that has `sqrt`."""

    xp: ClassVar[Any]
    _state: State

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        attributes = {key: value for key, value in op.attributes.items() if key != "t"}
        self.rule = {**OPTIMIZERS, **own_rules()}[op.name](**attributes)
        self._parameters = dict(parameters)
        start = self.rule.start(self.xp, self._parameters)
        self.restore(start.t, start.slots)

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters

    def step(self, gradients: Mapping[str, Any]) -> None:
        self._parameters, self._state = self.rule.update(
            self.xp, self._parameters, gradients, self._state
        )

    def scale_lr(self, factor: float, *names: str) -> None:
        if names:
            raise Unsupported("a rule has one learning rate")
        self.rule = self.rule.with_(lr=self.rule.lr * factor)

    def state(self) -> tuple[int, Slots]:
        return self._state.t, self._state.slots

    def restore(self, t: int, slots: Slots) -> None:
        self._state = State(t, dict(slots))


def one_step(kind: type[Updater], op: Any, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
    """A row of a backend: (w, *slots) after step number `op.t`."""
    updater = kind(op, {"w": w})
    updater.restore(op.t - 1, {"w": slots})
    updater.step({"w": g})
    return (updater.parameters["w"], *updater.state()[1]["w"])


@dataclass(frozen=True)
class Kind:
    """A framework's own optimizer: made of our hyperparameters, with its names of our slots."""

    make: Callable[..., Any]
    slots: tuple[str, ...] = ()


def kind_of(updater: Any, op: Any) -> Kind:
    """That of a rule, among the `kinds` of an updater. Raises `Unsupported` if it has none.

    One of a user's own rule was written for it: that is an error.
    """
    if op.name in updater.kinds:
        kind: Kind = updater.kinds[op.name]
        return kind
    text = f"{type(updater).__name__} has no {op.name}"
    if op.name in OPTIMIZERS:
        raise Unsupported(text)
    raise ValueError(f"{text}: its `kinds` have {', '.join(updater.kinds)}")


def arguments(op: Any, **sources: Any) -> dict[str, Any]:
    """Arguments of a framework's optimizer, by its names: constants, and hyperparameters of `op`.

    >>> arguments(op, eps="epsilon", betas="beta1 beta2", nesterov=True)
    {"eps": op.epsilon, "betas": (op.beta1, op.beta2), "nesterov": True}
    """
    return {
        name: attrgetter(*source.split())(op) if isinstance(source, str) else source
        for name, source in sources.items()
    }


def variant(backend: Any, kind: str, name: str) -> dict[str, Any]:
    """What a kind of optimizer does instead of having a hyperparameter: see `fixed`."""
    return dict(updater_of(backend, kind, name).fixed.get(name, {}))
