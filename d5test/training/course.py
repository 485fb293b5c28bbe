"""The course that an optimizer takes through a noisy quadratic, where the framework lives.

Parameters w with curvatures c around an optimum, whose gradients are seen through noise, a sample
of which is drawn beforehand for each step: c (w - optimum) + noise. The model of Zhang et al.,
arXiv 1907.04164, section 3, for what minibatches do to optimizers. On the way happens what people
do to an optimizer, as far as it can be done to this one. Frameworks' operators only.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.backends.base import Backend, Unsupported
from d5test.backends.updater import Updater, updater_of
from d5test.worker.bound import OperatorView
from d5test.worker.wire import Bits

Named = Mapping[str, Any]
"""Tensors by parameter."""
GROUPED, GROUP_FACTOR = "v", 0.5
"""A parameter in a group of its own, and its learning rate in units of the others'."""
FACTORS: Mapping[int, float] = {10: 0.5, 20: 2.0, 50: 0.5}
"""By which the learning rate is multiplied after so many steps."""
FROZEN, FROZEN_STEPS = "b", range(15, 18)
"""A parameter that has no gradient in these steps, counted from 0."""
SINCE = 2
"""Until so many times the last such step a fault of this parameter alone is put down to them."""
BFLOAT16_NAN = 0x7FC0
CHECKPOINTS = (7, 60)
"""After so many steps the optimizer is saved, and loaded into a new one."""
PLACED = {"w": "transposed"}
"""The memory layouts of parameters, where a framework has them; others are contiguous."""
LAYOUTS = {"v": "transposed", "b": "strided", "w": "contiguous"}
"""The memory layouts of gradients, where a framework has them and does not misread them."""


def groups(updater: Any) -> None:
    """Its learning rate differs between parameters."""
    updater.scale_lr(GROUP_FACTOR, GROUPED)


def schedule(updater: Any) -> None:
    """Its learning rate changes on the way."""
    updater.scale_lr(FACTORS[10])


def checkpoint(updater: Any) -> None:
    """It is saved and loaded on the way."""
    updater.resumed()


def freeze(updater: Any) -> None:
    """A parameter has no gradient in some steps, which are none of that parameter's."""
    if not updater.skips_absent:
        raise Unsupported("what it does without a gradient is not documented")


def layouts(updater: Any) -> None:
    """Gradients are not laid out in memory as their parameters are."""
    if updater.misreads:
        raise Unsupported(f"known failure: {updater.misreads}")


CHANGES: Mapping[str, Callable[[Any], None]] = {
    change.__name__: change for change in (groups, schedule, checkpoint, freeze, layouts)
}
"""What may happen on the way, by name. Each raises `Unsupported` for an updater without it."""


def impossible(make: Callable[[], Updater]) -> dict[str, str]:
    """Which of `CHANGES` cannot be made to such an updater, and why."""
    reasons = {}
    for name, change in CHANGES.items():
        try:
            change(make())
        except Unsupported as reason:
            reasons[name] = str(reason)
    return reasons


def follow(
    updater: Any,
    curvature: Named,
    optimum: Named,
    noise: Sequence[Named],
    changes: Collection[str],
    laid_out: Callable[[str, Any], Any] = lambda name, gradient: gradient,
) -> Iterator[dict[str, Any]]:
    """The parameters after each step, where these of `CHANGES` happen on the way."""
    if "groups" in changes:
        groups(updater)
    for taken, sample in enumerate(noise):
        if "schedule" in changes and taken in FACTORS:
            updater.scale_lr(FACTORS[taken])
        if "checkpoint" in changes and taken in CHECKPOINTS:
            updater = updater.resumed()
        frozen = FROZEN if "freeze" in changes and taken in FROZEN_STEPS else None
        updater.step(
            {
                name: laid_out(name, curvature[name] * (w - optimum[name]) + sample[name])
                for name, w in updater.parameters.items()
                if name != frozen
            }
        )
        yield updater.parameters


def happened(step: int, changes: Collection[str], wrong: Collection[str]) -> str:
    """What of `changes` was done at step number `step`, counted from 1, or before it, after which
    the parameters `wrong` are so; empty if nothing. What is done to one explains that one alone.
    """
    taken, alone = step - 1, len(wrong) == 1
    done = {
        "groups": taken == 0
        and (GROUPED not in wrong or alone)
        and f"{GROUPED} has {GROUP_FACTOR} times the learning rate",
        "schedule": taken in FACTORS and f"a learning rate {FACTORS.get(taken)} times as large",
        "checkpoint": taken in CHECKPOINTS and "saved and loaded into a new optimizer",
        "freeze": FROZEN_STEPS.start <= taken < SINCE * FROZEN_STEPS.stop
        and (taken in FROZEN_STEPS or (alone and FROZEN in wrong))
        and f"{FROZEN} has no gradient in steps {FROZEN_STEPS.start + 1} to {FROZEN_STEPS.stop}",
    }
    return ", ".join(str(words) for name, words in done.items() if words and name in changes)


def run(
    backend: Backend,
    kind: str,
    rule: str,
    attributes: dict[str, Any],
    start: dict[str, Bits],
    curvature: dict[str, Bits],
    optimum: dict[str, Bits],
    noise: list[dict[str, Bits]],
) -> tuple[dict[str, str], list[dict[str, Any]], str]:
    """Which of `CHANGES` cannot be made to a backend's updater of this kind, and why; the
    parameters after each step, as arrays; and the first gradient that a step overwrote, in words.
    """

    def put(arrays: dict[str, Bits], layouts: Mapping[str, str] = MappingProxyType({})) -> Any:
        known = {name: layout for name, layout in layouts.items() if layout in backend.layouts}
        return {
            name: backend.put(x.array.copy(), x.dtype, known.get(name, "contiguous"))
            for name, x in arrays.items()
        }

    def make() -> Updater:
        return updater_of(backend, kind, rule)(OperatorView(rule, attributes), put(start, PLACED))

    updater = updater_of(backend, kind, rule)
    reasons, samples = impossible(make), [put(sample) for sample in noise]
    handed = Handed(backend, PLACED if "layouts" in reasons else LAYOUTS)
    changes = CHANGES.keys() - reasons
    walked = follow(make(), put(curvature), put(optimum), samples, changes, handed)
    results, overwritten = [], ""
    for number, parameters in enumerate(walked, 1):
        results.append({name: Bits(*backend.get(w)) for name, w in parameters.items()})
        changed, known = handed.take_back(), updater.spoils.get(rule)
        if changed and known:
            reasons["gradient"] = f"known failure: {known}"
        elif changed and not updater.overwrites:
            overwritten = overwritten or f"that of {changed}, in step {number}"
    return reasons, results, overwritten


class Handed:
    """The gradients of a step: laid out when they are handed over, and looked at afterwards."""

    def __init__(self, backend: Backend, layouts: Mapping[str, str]) -> None:
        self.backend, self.layouts = backend, layouts
        self._out: dict[str, tuple[Any, Bits]] = {}

    def __call__(self, name: str, gradient: Any) -> Any:
        """The gradient of a parameter in its layout."""
        array, layout = Bits(*self.backend.get(gradient)), self.layouts.get(name, "contiguous")
        if layout in self.backend.layouts:
            gradient = self.backend.put(*array, layout)
        self._out[name] = gradient, array
        return gradient

    def take_back(self) -> str:
        """The parameter whose gradient is another now; empty: none.

        Where tensors can be overwritten these are, with NaN: whoever uses a buffer again does so.
        """
        changed = ""
        for name, (gradient, before) in self._out.items():
            if not Bits(*self.backend.get(gradient)).same(before):
                changed = changed or name
            if self.backend.mutable:
                nan = BFLOAT16_NAN if before.dtype == "bfloat16" else np.nan
                self.backend.refill(gradient, np.full_like(before.array, nan), before.dtype)
        self._out.clear()
        return changed
