"""Optimizers that are wrong on purpose, each in the way of a mistake that people make."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, NumpyUpdater
from d5test.backends.updater import Updater, one_step
from d5test.client.client import InProcessClient
from d5test.reference.optimizers import OPTIMIZERS, Adam, AdamW, Optimizer
from d5test.worker.service import Service


class Local(InProcessClient):
    """A backend in this process whose own optimizer is `kind`."""

    def __init__(self, kind: type[Updater]) -> None:
        self.name = kind.__name__
        made: Any = Numpy()
        made.updaters = {"native": kind, "reference": NumpyUpdater}
        made.rows = {
            name: Row(lambda op, w, g, *slots: one_step(kind, op, w, g, *slots))
            if name in OPTIMIZERS and name != "GradientDescent"
            else row
            for name, row in made.rows.items()
        }
        self._requests = Service(lambda: made)


def mistaken(change: Callable[[Any], Optimizer]) -> type[Updater]:
    """NumPy's optimizer with another rule than the one that is asked for."""

    class Mistaken(NumpyUpdater):
        def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
            super().__init__(op, parameters)
            self.rule = change(self.rule)

    return Mistaken


@dataclass(frozen=True, kw_only=True)
class Unlike(Adam):
    """Adam as torch writes it, wrong in one of its terms."""

    what: str

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        if self.epsilon_hat or not self.bias_correction:
            return super().rule(xp, t, w, g, *slots)
        exp_avg, exp_avg_sq = slots
        exp_avg = exp_avg + (1 - self.beta1) * (g - exp_avg)
        exp_avg_sq = exp_avg_sq * self.beta2 + (1 - self.beta2) * g * g
        correction1, correction2 = 1 - self.beta1**t, 1 - self.beta2**t
        if self.what == "swapped":
            correction1, correction2 = correction2, correction1
        correction1 = 1 if self.what == "first" else correction1
        correction2 = 1 if self.what == "second" else correction2
        denominator = np.sqrt(exp_avg_sq) / correction2**0.5 + self.epsilon
        if self.what == "corrected":
            denominator = np.sqrt(exp_avg_sq / correction2 + self.epsilon)
        if self.what == "uncorrected":
            denominator = np.sqrt(exp_avg_sq + self.epsilon) / correction2**0.5
        return w - self.lr / correction1 * exp_avg / denominator, exp_avg, exp_avg_sq


class Twice(AdamW):
    """Weights decay twice."""

    def apply(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        if not self.decoupled:
            return super().apply(xp, t, w, g + self.weight_decay * w, *slots)
        return super().apply(xp, t, w - self.lr * self.weight_decay * w, g, *slots)


class Unmoved(NumpyUpdater):
    """It leaves vectors where they are, matrices not."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        before = {name: w for name, w in self.parameters.items() if w.ndim == 1}
        super().step(gradients)
        self._parameters.update(before)


class Stuck(NumpyUpdater):
    """It counts no steps: the moments are corrected as if each step were the first."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        super().step(gradients)
        self.restore(0, self.state()[1])


class Late(NumpyUpdater):
    """It applies the gradient of the step before."""

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        self.before: Mapping[str, Any] = {name: 0 * w for name, w in parameters.items()}

    def step(self, gradients: Mapping[str, Any]) -> None:
        super().step(self.before)
        self.before = {name: g.copy() for name, g in gradients.items()}


class Confused(NumpyUpdater):
    """It hands every parameter the gradient of the first one, cut to size."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        first = next(iter(gradients.values()))
        super().step(
            {name: first.flat[: g.size].reshape(g.shape) for name, g in gradients.items()}
        )


class Stubborn(NumpyUpdater):
    """It reads its learning rate once."""

    def scale_lr(self, factor: float, *names: str) -> None:
        if names:
            super().scale_lr(factor, *names)


class SharedByShape(NumpyUpdater):
    """It keeps its slots by the shapes of the parameters, not by the parameters."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        t, slots = self.state()
        kept = {w.shape: slots[name] for name, w in self.parameters.items()}
        self.restore(t, {name: kept[w.shape] for name, w in self.parameters.items()})
        super().step(gradients)


class Forgetful(NumpyUpdater):
    """It loses its slots after the fiftieth step."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        super().step(gradients)
        t, slots = self.state()
        if t == 50:
            self.restore(t, {name: tuple(0 * x for x in kept) for name, kept in slots.items()})


class FromTwo(NumpyUpdater):
    """It counts steps from 2."""

    def restore(self, t: int, slots: Any) -> None:
        super().restore(t + 1, slots)


class Fresh(NumpyUpdater):
    """It goes on from a state without its slots: a momentum that was not stored."""

    def restore(self, t: int, slots: Any) -> None:
        super().restore(t, {name: tuple(0 * x for x in kept) for name, kept in slots.items()})


class PerParameter(Updater):
    """NumPy's rules, one for each parameter, to which everything can be done on the way."""

    skips_absent = True

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        self.op = op
        self.parts = {name: NumpyUpdater(op, {name: w}) for name, w in parameters.items()}

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: part.parameters[name] for name, part in self.parts.items()}

    def step(self, gradients: Mapping[str, Any]) -> None:
        for name, gradient in gradients.items():
            self.parts[name].step({name: gradient})

    def scale_lr(self, factor: float, *names: str) -> None:
        for name in names or self.parts:
            self.parts[name].scale_lr(factor)

    def resumed(self) -> Any:
        other = type(self)(self.op, self.parameters)
        for name, part in self.parts.items():
            other.parts[name].restore(*part.state())
            other.parts[name].rule = part.rule
        return other

    def state(self) -> tuple[int, Any]:
        raise NotImplementedError

    def restore(self, t: int, slots: Any) -> None:
        raise NotImplementedError


class OneGroup(PerParameter):
    """What a group is to have, all have."""

    def scale_lr(self, factor: float, *names: str) -> None:
        super().scale_lr(factor)


class Reborn(PerParameter):
    """It goes on from a checkpoint with the learning rates of the beginning."""

    def resumed(self) -> Any:
        other = super().resumed()
        fresh = type(self)(self.op, self.parameters)
        for name, part in other.parts.items():
            part.rule = fresh.parts[name].rule
        return other


class Decaying(PerParameter):
    """It takes a gradient that is not there for one of zeros."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        zeros = {name: 0 * w for name, w in self.parameters.items()}
        super().step({**zeros, **gradients})


class Unstrided(NumpyUpdater):
    """It reads gradients as if their elements lay in the order of their indices."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        super().step({name: g.ravel(order="K").reshape(g.shape) for name, g in gradients.items()})


class Keeping(NumpyUpdater):
    """It works its slots out when it needs them, of a gradient that it kept and did not copy."""

    def __init__(self, op: Any, parameters: Mapping[str, Any]) -> None:
        super().__init__(op, parameters)
        self._kept: Any = None

    def step(self, gradients: Mapping[str, Any]) -> None:
        if self._kept is not None:
            before, kept, state = self._kept
            _, self._state = self.rule.update(self.xp, before, kept, state)
        self._kept = self.parameters, dict(gradients), self._state
        super().step(gradients)


class Overwriting(NumpyUpdater):
    """It adds the decay of a matrix to the gradient that it was given."""

    def step(self, gradients: Mapping[str, Any]) -> None:
        super().step(gradients)
        for name in ("w", "v"):
            if name in gradients:
                gradients[name][...] += self.rule.weight_decay * self.parameters[name]
