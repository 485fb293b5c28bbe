"""Optimizers: pure update rules. Parameters, gradients, state in; parameters, state out.

A rule is written against the array interface: `xp` is the module that has `sqrt` and `maximum`
for the arrays at hand (`numpy`, `torch`, `tensorflow`, `jax.numpy`), so that the same lines run on
NumPy arrays, on error bars, and on a framework's own tensors. It overwrites nothing. Nothing is
imported here: a rule runs wherever a framework lives.

What the literature and the frameworks do differently is a field, whose default is the paper's:
where epsilon stands, whether moments are corrected, how weights decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing import Self  # a worker's Python 3.10 has none


@dataclass(frozen=True)
class State:
    """What an optimizer remembers: `t`, the steps taken, and the slots of each parameter.

    A slot is an array of its parameter's shape; a rule says how many it has, and their names.
    """

    t: int = 0
    slots: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An update rule with its hyperparameters. A subclass is one rule.

    lr            learning rate
    weight_decay  the factor lambda of L2 regularisation or of weight decay
    decoupled     whether weights decay by themselves, w - lr lambda w, instead of through the
                  gradient, g + lambda w (Loshchilov and Hutter, arXiv 1711.05101)
    """

    lr: float = 0.01
    weight_decay: float = 0.0
    decoupled: bool = False

    slots: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays that are remembered for each parameter."""
    implementations: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    """By framework, for a rule that is not in `OPTIMIZERS`: a function of nothing, called where
    the framework is, that returns the `d5test.backends.updater.Updater` to be judged."""

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """(w, *slots) after step `t`, counted from 1, with the gradient `g` at `w`."""
        raise NotImplementedError

    def fresh(self, xp: Any, w: Any) -> tuple[Any, ...]:
        """The slots of a parameter before the first step."""
        return tuple(xp.zeros_like(w) for _ in self.slots)

    def apply(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """The rule with weight decay. Elementwise: a part of an array may be updated alone."""
        if self.weight_decay != 0 and self.decoupled:
            w = w - self.lr * self.weight_decay * w
        elif self.weight_decay != 0:
            g = g + self.weight_decay * w
        return self.rule(xp, t, w, g, *slots)

    def start(self, xp: Any, parameters: Mapping[str, Any]) -> State:
        """The state before the first step."""
        return State(0, {name: self.fresh(xp, w) for name, w in parameters.items()})

    def update(
        self, xp: Any, parameters: Mapping[str, Any], gradients: Mapping[str, Any], state: State
    ) -> tuple[dict[str, Any], State]:
        """One step: the new parameters and the new state."""
        new, slots = {}, {}
        for name, w in parameters.items():
            new[name], *kept = self.apply(xp, state.t + 1, w, gradients[name], *state.slots[name])
            slots[name] = tuple(kept)
        return new, State(state.t + 1, slots)

    def with_(self, **hyperparameters: Any) -> Self:
        """The same rule with other hyperparameters."""
        return replace(self, **hyperparameters)

    @property
    def name(self) -> str:
        """The rule's name."""
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Optimizer):
    """w - lr g. Robbins and Monro, Annals of Mathematical Statistics 22 (1951)."""

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """No slots."""
        return (w - self.lr * g,)


@dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """The heavy ball: v = mu v + g, w - lr v. Polyak, USSR Comp. Math. Math. Phys. 4 (1964).

    dampening       from the second step on the gradient counts 1 - dampening in v (ONNX's beta)
    lr_in_velocity  v is a step, v = mu v - lr g and w + v (Sutskever et al., ICML 2013, equations
                    1 and 2): the same until lr changes
    """

    momentum: float = 0.9
    dampening: float = 0.0
    lr_in_velocity: bool = False
    slots = ("velocity",)

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """One slot: v."""
        (v,) = slots
        if self.dampening != 0:
            g = g * (1 - self.dampening * (t > 1))
        if self.lr_in_velocity:
            v = self.momentum * v - self.lr * g
            return w + v, v
        v = self.momentum * v + g
        return w - self.lr * v, v


@dataclass(frozen=True, kw_only=True)
class Nesterov(Momentum):
    """Momentum that looks ahead: v = mu v + g, w - lr (g + mu v).

    Nesterov, Soviet Math. Doklady 27 (1983), in the variables of Bengio et al., arXiv 1212.0901,
    equation 7: w is where the gradient was taken.
    """

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """One slot: v. ONNX dampens the gradient in v alone."""
        (v,) = slots
        damped = g * (1 - self.dampening * (t > 1)) if self.dampening != 0 else g
        if self.lr_in_velocity:
            v = self.momentum * v - self.lr * damped
            return w + self.momentum * v - self.lr * g, v
        v = self.momentum * v + damped
        return w - self.lr * (g + self.momentum * v), v


@dataclass(frozen=True, kw_only=True)
class AdaGrad(Optimizer):
    """h = h + g^2, w - lr g / (sqrt(h) + epsilon).

    Duchi, Hazan and Singer, JMLR 12 (2011), figure 1, with diagonal matrices.

    epsilon_inside  epsilon stands under the root: sqrt(h + epsilon)
    accumulator     h before the first step
    lr_decay        step t has the learning rate lr / (1 + (t - 1) lr_decay)
    """

    epsilon: float = 1e-10
    epsilon_inside: bool = False
    accumulator: float = 0.0
    lr_decay: float = 0.0
    slots = ("sum",)

    def fresh(self, xp: Any, w: Any) -> tuple[Any, ...]:
        """`accumulator` everywhere."""
        return (xp.zeros_like(w) + self.accumulator,)

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """One slot: h."""
        (h,) = slots
        h = h + g * g
        lr = self.lr / (1 + (t - 1) * self.lr_decay) if self.lr_decay != 0 else self.lr
        return w - lr * g / rooted(xp, h, self.epsilon, self.epsilon_inside), h


@dataclass(frozen=True, kw_only=True)
class RMSProp(Optimizer):
    """v = rho v + (1 - rho) g^2, w - lr g / (sqrt(v) + epsilon).

    Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5 (2012), which has no
    epsilon.

    epsilon_inside  epsilon stands under the root: sqrt(v + epsilon)
    """

    rho: float = 0.9
    epsilon: float = 1e-8
    epsilon_inside: bool = False
    slots = ("mean_square",)

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """One slot: v."""
        (v,) = slots
        v = self.rho * v + (1 - self.rho) * (g * g)
        return w - self.lr * g / rooted(xp, v, self.epsilon, self.epsilon_inside), v


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Moments of the gradient, corrected for their start at zero.

    m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
    w - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon).
    Kingma and Ba, arXiv 1412.6980, algorithm 1.

    epsilon_hat      epsilon is added to the root of the uncorrected moment, as at the end of the
                     paper's section 2: lr sqrt(1 - beta2^t) / (1 - beta1^t) is its learning rate
    bias_correction  without it: w - lr m / (sqrt(v) + epsilon)
    """

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    epsilon_hat: bool = False
    bias_correction: bool = True
    slots: ClassVar[tuple[str, ...]] = ("first", "second")

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """Two slots: m, v."""
        m, v = self.moments(g, *slots)
        return self.stepped(xp, w, m, v, *self.corrections(t)), m, v

    def moments(self, g: Any, m: Any, v: Any) -> tuple[Any, Any]:
        """Both averages, with the gradient in them."""
        m = self.beta1 * m + (1 - self.beta1) * g
        return m, self.beta2 * v + (1 - self.beta2) * (g * g)

    def corrections(self, t: int) -> tuple[Any, Any]:
        """What the first and the second moment of step `t` are divided by."""
        return (1 - self.beta1**t, 1 - self.beta2**t) if self.bias_correction else (1.0, 1.0)

    def stepped(self, xp: Any, w: Any, m: Any, v: Any, first: Any, second: Any) -> Any:
        """The parameter moved by these moments, which are not corrected yet."""
        # numerator and denominator times sqrt(second): v is read once, and not divided
        lr, epsilon = self.lr * second**0.5 / first, self.epsilon
        if not self.epsilon_hat:
            epsilon = epsilon * second**0.5
        return w - lr * m / (xp.sqrt(v) + epsilon)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay. Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.

    The paper's schedule multiplier is `lr` here and its alpha is 1, as in every framework: the
    decay is lr lambda w.
    """

    weight_decay: float = 0.01
    decoupled: bool = True


@dataclass(frozen=True, kw_only=True)
class AMSGrad(Adam):
    """Adam with the largest second moment so far, l = max(l, v), in place of v.

    Reddi, Kale and Kumar, ICLR 2018 (arXiv 1904.09237), algorithm 2, which corrects no moment and
    has no epsilon.

    largest_corrected  l is the largest of the corrected moments: max(l, v / (1 - beta2^t))
    """

    bias_correction: bool = False
    largest_corrected: bool = False
    slots: ClassVar[tuple[str, ...]] = ("first", "second", "largest")

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """Three slots: m, v, l."""
        *moments, largest = slots
        m, v = self.moments(g, *moments)
        first, second = self.corrections(t)
        if self.largest_corrected:
            largest, second = xp.maximum(largest, v / second), 1.0
        else:
            largest = xp.maximum(largest, v)
        return self.stepped(xp, w, m, largest, first, second), m, v, largest


def rooted(xp: Any, x: Any, epsilon: float, inside: bool) -> Any:
    """The root of a mean or sum of squares, kept from zero by epsilon."""
    return xp.sqrt(x + epsilon) if inside else xp.sqrt(x) + epsilon


OPTIMIZERS: dict[str, type[Optimizer]] = {
    rule.__name__: rule
    for rule in (GradientDescent, Momentum, Nesterov, AdaGrad, RMSProp, Adam, AdamW, AMSGrad)
}
"""Every rule, by name."""
