"""The course that an optimizer takes through a noisy quadratic, where the framework lives.

Parameters w with curvatures c around an optimum, whose gradients are seen through noise, a sample
of which is drawn beforehand for each step: c (w - optimum) + noise. The model of Zhang et al.,
arXiv 1907.04164, section 3, for what minibatches do to optimizers. The learning rate changes on
the way where it can be changed. Frameworks' operators only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d5test.backends.base import Backend, Unsupported
from d5test.backends.updater import updater_of
from d5test.worker.bound import OperatorView
from d5test.worker.wire import Bits

FACTORS: Mapping[int, float] = {10: 0.5, 20: 2.0, 50: 0.5}
"""By which the learning rate is multiplied after so many steps."""


def follow(
    updater: Any,
    curvature: Mapping[str, Any],
    optimum: Mapping[str, Any],
    noise: Sequence[Any],
    scaled: bool,
) -> Iterator[dict[str, Any]]:
    """The parameters after each step; with `scaled` learning rates."""
    for taken, sample in enumerate(noise):
        if scaled and taken in FACTORS:
            updater.scale_lr(FACTORS[taken])
        updater.step(
            {
                name: curvature[name] * (w - optimum[name]) + sample[name]
                for name, w in updater.parameters.items()
            }
        )
        yield updater.parameters


def run(
    backend: Backend,
    kind: str,
    rule: str,
    attributes: dict[str, Any],
    start: dict[str, Bits],
    curvature: dict[str, Bits],
    optimum: dict[str, Bits],
    noise: list[dict[str, Bits]],
) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the learning rate of a backend's updater of this kind can be changed, and the
    parameters after each step, as arrays.
    """

    def put(arrays: dict[str, Bits]) -> dict[str, Any]:
        return {name: backend.put(x.array.copy(), x.dtype) for name, x in arrays.items()}

    updater = updater_of(backend, kind, rule)(OperatorView(rule, attributes), put(start))
    samples = [put(sample) for sample in noise]
    try:
        updater.scale_lr(1.0)
    except Unsupported:
        scaled = False
    else:
        scaled = True
    walked = follow(updater, put(curvature), put(optimum), samples, scaled)
    return scaled, [
        {name: Bits(*backend.get(w)) for name, w in parameters.items()} for parameters in walked
    ]
