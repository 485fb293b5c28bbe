"""The course that an optimizer takes through a noisy quadratic, where the framework lives.

Parameters w with curvatures c around an optimum, whose gradients are seen through noise, a sample
of which is drawn beforehand for each step: c (w - optimum) + noise. The model of Zhang et al.,
arXiv 1907.04164, section 3, for what minibatches do to optimizers. Frameworks' operators only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from d5test.backends.base import Backend
from d5test.backends.updater import updater_of
from d5test.worker.bound import OperatorView
from d5test.worker.wire import Bits


def follow(
    updater: Any, curvature: Mapping[str, Any], optimum: Mapping[str, Any], noise: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """The parameters after each step."""
    for sample in noise:
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
) -> list[dict[str, Any]]:
    """The parameters after each step of a backend's updater of this kind, as arrays."""

    def put(arrays: dict[str, Bits]) -> dict[str, Any]:
        return {name: backend.put(x.array.copy(), x.dtype) for name, x in arrays.items()}

    updater = updater_of(backend, kind, rule)(OperatorView(rule, attributes), put(start))
    samples = [put(sample) for sample in noise]
    return [
        {name: Bits(*backend.get(w)) for name, w in parameters.items()}
        for parameters in follow(updater, put(curvature), put(optimum), samples)
    ]
