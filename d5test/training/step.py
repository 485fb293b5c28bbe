"""One step of an optimizer: within the reference's bars, or the mistake that it looks like.

Parameter and slots are judged, from a state in full swing, so that a wrong moment is found before
it has moved a parameter. The reference is the variant that the framework documents.

A fault that says "looks like Adam with beta1 and beta2 exchanged" is half the repair. A suspect is
one of the usual mistakes, a function from the step that was asked for to the step that the mistake
makes of it; it is named if the wrong result lies within that one's bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from d5test.case import FLOATS, Array, Case
from d5test.checks.check import Check
from d5test.checks.inquiry import Inquiry
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.judgement import Judgement, judge
from d5test.outcome.fault import Fault
from d5test.reference.optimizers import OPTIMIZERS, Adam, AMSGrad, Optimizer
from d5test.reference.steps import STEPS, Step, step_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Rule = TypeVar("Rule", Optimizer, Step)


def variant(client: Any, rule: Rule, kind: str = "native") -> Rule:
    """A rule as a backend has it: its own optimizer, or (`reference`) our rule on its tensors."""
    return rule.with_(**client.invoke("d5test.backends.updater:variant", kind, rule.name))


def step(client: Any, case: Case) -> Judgement:
    """Every element of the parameter and of each slot lies within its bar."""
    assert isinstance(case.op, Step)
    op = variant(client, case.op)
    inquiry = Inquiry("step", client, replace(case, op=op))
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed)
    try:
        return inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))
    except Fault as fault:
        arrays, arithmetic = inquiry.arrays, inquiry.classes()[0]

        def explains(other: Step) -> bool:
            return judge(forward_bounds(other, arrays, arithmetic), result.outputs).right

        (after, *_), (start, *_) = forward_bounds(op, arrays, arithmetic), arrays
        assert after is not None
        assert start is not None
        if named := looks_like(op, explains, start, after.value, result.outputs[0]):
            fault.details["looks like"] = named
        raise


def drawn(operator: Any, dtype: str, **choices: Any) -> SearchStrategy[Case]:
    """Steps of a rule; `choices` as for `d5test.strategies.cases`."""
    from d5test.strategies import cases
    from d5test.strategies.optimizers import register

    register(operator)
    return cases(operator, dtype, **choices)


STEP = Check("step", step, FLOATS, "value", cases=drawn, resizable=True)


@dataclass(frozen=True, kw_only=True)
class MistakenAdam(Adam):
    """Adam with `mistake`: `first`, `second`, `corrected`, `uncorrected` or `swapped`.

    first        the first moment alone is used as if it had not started at zero
    second       the second moment alone
    corrected    epsilon stands under the root, beside the corrected moment: sqrt(v' + epsilon)
    uncorrected  it stands there, beside the moment as it is: sqrt(v + epsilon) / sqrt(1 - beta2^t)
    swapped      the moments are corrected with each other's beta
    """

    mistake: str = ""

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """Two slots: m, v."""
        m, v = slots
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * (g * g)
        first, second = 1 - self.beta1**t, 1 - self.beta2**t
        if self.mistake == "swapped":
            first, second = second, first
        step = self.lr * m if self.mistake == "first" else self.lr * (m / first)
        if self.mistake == "second":
            root = xp.sqrt(v) + self.epsilon
        elif self.mistake == "corrected":
            root = xp.sqrt(v / second + self.epsilon)
        elif self.mistake == "uncorrected":
            root = xp.sqrt(v + self.epsilon) / np.sqrt(second)
        elif self.epsilon_hat:
            root = (xp.sqrt(v) + self.epsilon) / np.sqrt(second)
        else:
            root = xp.sqrt(v / second) + self.epsilon
        return w - step / root, m, v


@dataclass(frozen=True, kw_only=True)
class ForgetfulAMSGrad(AMSGrad):
    """AMSGrad whose largest second moment is that of the step: Adam, but for what it keeps."""

    def rule(self, xp: Any, t: int, w: Any, g: Any, *slots: Any) -> tuple[Any, ...]:
        """Three slots: m, v, l."""
        m, v, largest = slots
        return super().rule(xp, t, w, g, m, v, xp.zeros_like(largest))


MISTAKEN_ADAM: Any = step_of(MistakenAdam)
FORGETFUL_AMSGRAD: Any = step_of(ForgetfulAMSGrad)


def changing(changes: Callable[[Any], Mapping[str, Any]], *needed: str) -> Callable[[Any], Any]:
    """A suspect with other hyperparameters, where a rule has those `needed`, and not zero."""

    def suspect(step: Any) -> Any:
        has = all(getattr(step, name, 0) != 0 for name in needed)
        return step.with_(**changes(step)) if has else step

    return suspect


def toggled(name: str, *needed: str) -> Callable[[Any], Any]:
    """A suspect that turns a variant on or off, where a rule has it and those `needed`."""

    flipped = changing(lambda step: {name: not getattr(step, name)}, *needed)
    return lambda step: flipped(step) if hasattr(step, name) else step


def without(name: str) -> Callable[[Any], Any]:
    """A suspect that leaves a term out."""
    return changing(lambda step: {name: 0.0}, name)


def as_rule(name: str, other: str) -> Callable[[Any], Any]:
    """A suspect that applies another rule with the same hyperparameters."""
    return lambda step: mistaken(step, OPTIMIZERS[name], STEPS[other])


def mistaken(step: Any, rule: type[Optimizer], other: Any, **more: Any) -> Any:
    """Another step with the same hyperparameters, where it is one of this rule or a kind of it.

    One of a user's own may have hyperparameters that the other has not: then it is no suspect.
    """
    known = step.attributes.keys() <= {field.name for field in fields(other)}
    return other(**step.attributes, **more) if known and issubclass(step.rule, rule) else step


def in_adam(mistake: str) -> Callable[[Any], Any]:
    """A suspect that is wrong in a term of Adam and AdamW."""

    def suspect(step: Any) -> Any:
        if issubclass(step.rule, AMSGrad) or not getattr(step, "bias_correction", False):
            return step
        return mistaken(step, Adam, MISTAKEN_ADAM, mistake=mistake)

    return suspect


def forgetful(step: Any) -> Any:
    """A suspect that keeps no largest moment."""
    return mistaken(step, AMSGrad, FORGETFUL_AMSGRAD)


def decayed_twice(step: Any) -> Mapping[str, float]:
    """The decay of weights that is twice that of a step: of weights twice, or of a gradient."""
    decay = step.weight_decay
    return {"weight_decay": 2 * decay - step.decoupled * step.lr * decay**2}


SUSPECTS: Mapping[str, Callable[[Any], Any]] = {
    "beta1 and beta2 exchanged": changing(
        lambda step: {"beta1": step.beta2, "beta2": step.beta1}, "beta1", "beta2"
    ),
    "the moments' bias not corrected": changing(
        lambda step: {"bias_correction": False}, "bias_correction"
    ),
    "the first moment's bias not corrected": in_adam("first"),
    "the second moment's bias not corrected": in_adam("second"),
    "each moment corrected with the other's beta": in_adam("swapped"),
    "beta1 in the second moment too": changing(
        lambda step: {"beta2": step.beta1}, "beta1", "beta2"
    ),
    "beta2 in the first moment too": changing(
        lambda step: {"beta1": step.beta2}, "beta1", "beta2"
    ),
    "the largest second moment forgotten": forgetful,
    "the largest of the corrected moments, or of those as they are": toggled(
        "largest_corrected", "bias_correction"
    ),
    "epsilon before the correction, or after it": toggled("epsilon_hat"),
    "epsilon on the other side of the root": toggled("epsilon_inside"),
    "epsilon under the root, of the corrected moment": in_adam("corrected"),
    "epsilon under the root, of the moment as it is": in_adam("uncorrected"),
    "no epsilon": without("epsilon"),
    "no weight decay": without("weight_decay"),
    "the other kind of decay": toggled("decoupled", "weight_decay"),
    "decay applied twice": changing(decayed_twice, "weight_decay"),
    "decay without lr": changing(
        lambda step: {"weight_decay": step.weight_decay / step.lr}, "weight_decay", "decoupled"
    ),
    "no momentum": without("momentum"),
    "the gradient dampened by 1 - momentum": changing(
        lambda step: {"dampening": step.momentum}, "momentum"
    ),
    "no dampening": without("dampening"),
    "lr on the other side of the velocity": toggled("lr_in_velocity"),
    "Momentum instead of Nesterov": as_rule("Nesterov", "Momentum"),
    "Nesterov instead of Momentum": as_rule("Momentum", "Nesterov"),
    "rho and 1 - rho exchanged": changing(lambda step: {"rho": 1 - step.rho}, "rho"),
    "steps counted from 0": lambda step: step.with_(t=step.t - 1) if step.t > 1 else step,
    "steps counted from 2": changing(lambda step: {"t": step.t + 1}),
    "the sign of lr": changing(lambda step: {"lr": -step.lr}),
    "the parameter not moved": changing(lambda step: {"lr": 0.0}),
}
"""What the result looks like, and the step that would make it so."""


def suspects(step: Step) -> Iterator[tuple[str, Step]]:
    """The suspects that are another step than the one asked for."""
    for name, suspect in SUSPECTS.items():
        other = suspect(step)
        if other != step:
            yield name, other


def looks_like(
    step: Step, explains: Callable[[Step], bool], start: Array, want: Array, got: Array
) -> str:
    """The suspects that explain a wrong step, or a step of another length; empty if there is none.

    `want` and `got` are the parameter after the step from `start`, as it should be and as it is.
    """
    named = [name for name, other in suspects(step) if explains(other)]
    if named or len(start.ravel()) < 2 or got.shape != start.shape:
        return ", or ".join(named)
    before, after, reached = (x.astype(np.float64).ravel() for x in (start, want, got))
    with np.errstate(all="ignore"):
        # where the parameter moves most for its size, rounding changes the ratio least
        far = np.nan_to_num(np.abs((after - before) / before), posinf=0.0)
        i = int(np.argmax(far))
        times = float((reached[i] - before[i]) / (after[i] - before[i]))
    if not far[i] > 0 or not np.isfinite(times) or times <= 0 or times == 1:
        return ""
    lr = step.attributes["lr"] * times
    digits = max(6, 1 + int(-np.log10(abs(times - 1))))  # enough to differ from 1
    longer = f"a step {times:.{digits}g} times as long, as with lr {lr:.{digits}g}"
    return longer if explains(step.with_(lr=lr)) else ""
