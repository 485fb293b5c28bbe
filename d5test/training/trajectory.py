"""A hundred steps of an optimizer, against an ensemble of noisy references.

Bars grow with every step, so a whole trajectory is judged by the spread of eight references with
one rounding error per primitive (`d5test.numerics.ensemble`), step by step: the distance after
each step is the larger of the worst element's and the norm's, in units of what is allowed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import FLOATS, Array, Operator, Tensor
from d5test.numerics.arithmetic import Arithmetic, classes
from d5test.numerics.bounds import Bounds
from d5test.numerics.ensemble import ensemble_bounds, norm_ratio
from d5test.numerics.judgement import judge
from d5test.reference.optimizers import (
    AdaGrad,
    Adam,
    AdamW,
    AMSGrad,
    GradientDescent,
    Momentum,
    Nesterov,
    Optimizer,
    RMSProp,
)
from d5test.reference.steps import Step, as_step
from d5test.training.course import CHANGES, Named, follow, happened
from d5test.training.step import looks_like, variant

STEPS_TAKEN = 100
SHOWN = (1, 2, 5, 10, 20, 50, 100)
"""Steps whose distance a message shows."""
BEGINNING = 25
"""Steps by which a mistake is recognised: one that shows later is none of the usual ones."""
SHAPES = {"w": (5, 7), "b": (3,), "s": (2,), "v": (5, 7)}
"""Parameters of different shapes and of the same, so that a slot of the wrong one shows; but for
the one with a group of its own an odd number."""
KEPT = "a gradient that is kept, not copied: each is overwritten with NaN after its step"
DECAY, SMALL = 2.0**-7, 2.0**-10
USUAL: Mapping[str, Optimizer] = {
    rule.name: rule
    for rule in (
        GradientDescent(lr=0.125, weight_decay=DECAY),
        Momentum(lr=0.0625, momentum=0.875, weight_decay=DECAY),
        Nesterov(lr=0.0625, momentum=0.875, weight_decay=DECAY),
        AdaGrad(lr=0.125, epsilon=SMALL, weight_decay=DECAY),
        RMSProp(lr=0.03125, rho=0.9375, epsilon=SMALL, weight_decay=DECAY),
        Adam(lr=0.03125, beta1=0.875, beta2=0.984375, epsilon=SMALL, weight_decay=DECAY),
        AdamW(lr=0.03125, beta1=0.875, beta2=0.984375, epsilon=SMALL, weight_decay=DECAY),
        AMSGrad(
            lr=0.03125,
            beta1=0.875,
            beta2=0.984375,
            epsilon=SMALL,
            weight_decay=DECAY,
            bias_correction=True,
        ),
    )
}
"""Hyperparameters of the usual size; binary fractions, so that no framework rounds them."""


def usual(rule: type[Optimizer], dtype: str) -> Optimizer:
    """A rule with hyperparameters of the usual size; of one that is not ours, near its defaults.

    A step of a length that each step rounds alike, as 0.0001 is, would stray further than any
    ensemble of random roundings: the length is a power of two. In 16 bits 1 - beta2 is larger, or
    its first power would be lost in noise.
    """
    from d5test.strategies.optimizers import exact

    if type(USUAL.get(rule.__name__)) is rule:
        known = USUAL[rule.__name__]
        short = isinstance(known, Adam) and dtype in FLOATS[2:]
        return known.with_(beta2=0.9375) if short else known
    numbers = {name: exact(x) for name, x in vars(rule()).items() if isinstance(x, float)}
    sizes = {"lr": 0.03125, "weight_decay": DECAY, "epsilon": SMALL}
    return rule().with_(**numbers | {name: x for name, x in sizes.items() if name in numbers})


def followed(rule: type[Optimizer], dtype: str) -> Iterator[Optimizer]:
    """What is judged of a rule: in float32 also without a decay of weights.

    A gradient to which nothing is added takes another path through an optimizer.
    """
    decaying = usual(rule, dtype)
    yield decaying
    if dtype == "float32" and decaying.weight_decay:
        yield decaying.with_(weight_decay=0.0)


def arithmetic_of(dtype: str, flushes: bool) -> Arithmetic:
    """A primitive rounds to storage: an optimizer is made of them."""
    return next(a for a in classes(dtype, flushes=flushes) if a.name in ("", "P"))


@dataclass(frozen=True, kw_only=True, repr=False)
class Course(Operator):
    """`steps` steps of the rule that `step` is one of, through a noisy quadratic.

    Inputs: the starts of all parameters, their curvatures and optima; then for each step a sample
    of the noise for each. Outputs: the parameters after each step. The `changes` on the way are
    those of `d5test.training.course`.
    """

    step: Step
    steps: int = STEPS_TAKEN
    changes: tuple[str, ...] = tuple(CHANGES)

    def forward(self, *arrays: Any) -> tuple[Any, ...]:
        """As many arrays for each step as there are parameters."""
        start, curvature, optimum, noise = arranged(arrays)
        rule = self.step.optimizer(like=arrays[0])
        walked = follow(
            Plain(rule, start, self.step.t - 1), curvature, optimum, noise, self.changes
        )
        return tuple(w for parameters in walked for w in parameters.values())

    def inputs(self, dtype: str, seed: int) -> tuple[Array, ...]:
        """Curvatures over three decades: some parameters arrive, some are under way."""
        regimes: list[tuple[Any, ...]] = [("normal",)] * 3 + [("scaled", -3)] * self.steps
        tensors = [Tensor(shape, dtype, regime) for regime in regimes for shape in SHAPES.values()]
        arrays = [tensor.array(seed, i) for i, tensor in enumerate(tensors)]
        curved = slice(len(SHAPES), 2 * len(SHAPES))
        arrays[curved] = [
            np.exp2(np.clip(-5 + 2.5 * x, -10, 0)).astype(dtype) for x in arrays[curved]
        ]
        return tuple(arrays)


class Plain:
    """The reference rule at work on the ensemble's arrays, each parameter by itself."""

    skips_absent = True

    def __init__(self, rule: Any, parameters: Named, taken: int = 0) -> None:
        self.parameters = parameters
        self.rules = dict.fromkeys(parameters, rule)
        self.slots = rule.start(np, parameters).slots
        self.steps = dict.fromkeys(parameters, taken)

    def step(self, gradients: Named) -> None:
        """One step of the parameters that have a gradient."""
        for name, gradient in gradients.items():
            self.steps[name] += 1
            start = self.steps[name], self.parameters[name], gradient, *self.slots[name]
            w, *slots = self.rules[name].apply(np, *start)
            self.parameters = {**self.parameters, name: w}
            self.slots[name] = tuple(slots)

    def scale_lr(self, factor: float, *names: str) -> None:
        """Another learning rate from the next step on, of all parameters or of these."""
        for name in names or self.rules:
            rule = self.rules[name]
            self.rules[name] = rule.with_(lr=rule.lr * factor)

    def resumed(self) -> "Plain":
        """What is saved and loaded is the same."""
        return self


@dataclass(frozen=True)
class Distance:
    """How far a trajectory is from the references, after each step, in units of what is allowed.

    `worst` is the first step, counted from 1, after which it is furthest; `looks_like` has the
    mistakes that explain a distance above 1, if any does, `wrong` the parameters that are too far
    away, `overwritten` the first gradient that is another after its step, `changes` what was done
    on the way, `left` why something else was not; `telling`, whether parameters that never move
    would be too far away.
    """

    ratios: tuple[float, ...]
    looks_like: str = ""
    wrong: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    telling: bool = True
    overwritten: str = ""

    @property
    def right(self) -> bool:
        """Whether it is near enough after every step, and leaves gradients as they are."""
        return max(self.ratios) <= 1 and not self.overwritten

    @property
    def headline(self) -> str:
        """What is wrong."""
        return "wrong trajectory" if max(self.ratios) > 1 else "a gradient is overwritten"

    @property
    def worst(self) -> int:
        """The step after which the distance is largest."""
        return 1 + int(np.argmax(self.ratios))

    @property
    def leaves(self) -> int | None:
        """The first step after which it is too far away."""
        return next((i for i, ratio in enumerate(self.ratios, 1) if not ratio <= 1), None)


def arranged(
    arrays: Sequence[Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[Any]]:
    """Start, curvature, optimum by parameter, and the noise by step."""
    each = len(SHAPES)
    groups = [
        dict(zip(SHAPES, arrays[i : i + each], strict=True)) for i in range(0, len(arrays), each)
    ]
    return groups[0], groups[1], groups[2], groups[3:]


def distance(client: Any, kind: str, rule: Optimizer, dtype: str, seed: int = 0) -> Distance:
    """How far the trajectory of an optimizer is from the references.

    It is a backend's own (`native`), or our rule on its tensors. Raises `Unsupported` for a dtype
    that the rule's row does not declare.
    """
    row = client.about.rows.get(rule.name)
    if row is not None and dtype not in row.dtypes:
        raise Unsupported(f"{rule.name} is not declared for {dtype} on {client.about.name}")
    course = Course(step=as_step(variant(client, rule, kind)))
    arrays = course.inputs(dtype, seed)
    flushes = bool(client.about.flushes.get(dtype, False))
    arithmetic = arithmetic_of(dtype, flushes)
    attributes = {key: value for key, value in course.step.attributes.items() if key != "t"}
    target = "d5test.training.course:run"
    reasons, walked, overwritten = client.invoke(
        target, kind, rule.name, attributes, *arranged(arrays)
    )
    course = course.with_(changes=tuple(name for name in CHANGES if name not in reasons))
    left = tuple(reasons.values()) if kind != "reference" else ()
    results = [parameters[name] for parameters in walked for name in SHAPES]
    bounds = ensemble_bounds(course, arrays, None, arithmetic)
    by_parameter = apart(bounds, results)
    ratios = tuple(map(max, zip(*by_parameter.values(), strict=True)))
    if max(ratios) <= 1:
        unmoved = apart(bounds, arrays[: len(SHAPES)] * course.steps)
        telling = all(max(distances) > 1 for distances in unmoved.values())
        return Distance(
            ratios, changes=course.changes, left=left, telling=telling, overwritten=overwritten
        )
    wrong = tuple(name for name, distances in by_parameter.items() if max(distances) > 1)
    found = Distance(ratios, "", wrong, course.changes, left, overwritten=overwritten)
    assert found.leaves is not None
    begun, met = arrays[: (3 + BEGINNING) * len(SHAPES)], results[: BEGINNING * len(SHAPES)]

    def explains(other: Step) -> bool:
        mistaken = course.with_(step=other, steps=BEGINNING)
        others = apart(ensemble_bounds(mistaken, begun, None, arithmetic), met)
        return all(max(others[name]) <= 1 for name in wrong)

    first = list(SHAPES).index(wrong[0])
    bound = bounds[first]
    assert bound is not None
    named = ""
    if found.leaves <= BEGINNING:  # a rule that explains what begins later is right until then
        named = looks_like(course.step, explains, arrays[first], bound.value, results[first])
    after = len(SHAPES) * found.leaves
    lost = any(np.isnan(w).any() for w in results[after - len(SHAPES) : after])
    kept = lost and not named and client.about.mutable and found.leaves > 1
    return replace(found, looks_like=KEPT if kept else named)


def apart(bounds: Bounds, results: Sequence[Array]) -> dict[str, tuple[float, ...]]:
    """The distance of each parameter after each step."""
    each = len(SHAPES)
    return {
        name: tuple(
            ratio((bound,), (w,))
            for bound, w in zip(bounds[i::each], results[i::each], strict=True)
        )
        for i, name in enumerate(SHAPES)
    }


def ratio(bounds: Bounds, results: Sequence[Array]) -> float:
    """The distance of the worst element, or by norm, in units of what is allowed."""
    return max(judge(bounds, results).ratio, norm_ratio(bounds, results))


def in_words(distance: Distance) -> dict[str, str]:
    """A distance that is too large, or what is overwritten."""
    overwritten = {"overwritten": distance.overwritten} if distance.overwritten else {}
    if distance.leaves is None:
        return overwritten
    first = distance.leaves
    here = happened(first, distance.changes, distance.wrong)
    return overwritten | {
        "leaves": f"after step {first} of {len(distance.ratios)}" + f" ({here})" * bool(here),
        "worst": f"{max(distance.ratios):.4g} times what is allowed, after step {distance.worst}",
        "distance": ", ".join(f"{distance.ratios[i - 1]:.3g} after {i}" for i in SHOWN),
        "parameters": ", ".join(f"{name} {SHAPES[name]}" for name in distance.wrong),
        "looks like": distance.looks_like or "none of the usual mistakes",
    }
