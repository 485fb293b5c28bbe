"""Cases of the classifiers' losses: at least one label that counts."""

from __future__ import annotations

from functools import partial
from math import prod

from d5test.case import Tensor
from d5test.reference.operators import losses as ops
from d5test.strategies.draw import Draw, Shape
from d5test.strategies.registry import attributes, inputs

OPERATORS: tuple[type[ops.Loss], ...] = (
    ops.NegativeLogLikelihoodLoss,
    ops.SoftmaxCrossEntropyLoss,
)


def loss_attributes(cls: type[ops.Loss], d: Draw) -> ops.Loss:
    """Every reduction, with a class, a number that is none, or nothing ignored."""
    return cls(
        reduction=d.choose(("mean", "sum", "none")), ignore_index=d.choose((None, 0, 1, -1, -100))
    )


def loss_inputs(d: Draw, op: ops.Loss) -> tuple[Tensor | None, ...]:
    """With weights, with None in their place, and with neither."""
    n, classes, *rest = d.sides(d.choose((2, 3, 4)), most=5)
    scores = d.tensor((n, classes, *rest), "normal", "uniform", "heavy", "ties", ("scaled", 10))
    weights = d.maybe(d.tensor((classes,), "positive"))
    drawn = scores, labels(d, op.ignore_index, (n, *rest), classes), weights
    return drawn if weights is not None or d.flag() else drawn[:2]


def labels(d: Draw, ignored: int | None, shape: Shape, classes: int) -> Tensor:
    """Classes, and where one is ignored also that one; the first is never ignored."""
    if ignored is None:
        return d.index(shape, classes)
    counting = [label for label in range(classes) if label != ignored] or [0]
    others = [d.choose([*counting, ignored]) for _ in range(prod(shape) - 1)]
    return d.literal([d.choose(counting), *others], shape=shape)


for operator in OPERATORS:
    attributes(operator)(partial(loss_attributes, operator))
    inputs(operator)(loss_inputs)
