"""`torch.optim`, and the reference rules on PyTorch's tensors.

Hyperparameters are kept in double precision. Weights decay through the gradient, but for AdamW.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, optim

from d5test.backends.base import Table, Unsupported
from d5test.backends.updater import (
    Kind,
    ReferenceUpdater,
    Slots,
    Updater,
    arguments,
    kind_of,
    one_step,
)


def made(cls: Any, op: Any, tensors: Any, **sources: Any) -> optim.Optimizer:
    optimizer: optim.Optimizer = cls(
        tensors, **arguments(op, lr="lr", weight_decay="weight_decay", **sources)
    )
    return optimizer


momentum = partial(made, optim.SGD, momentum="momentum", dampening="dampening")
adagrad = partial(
    made, optim.Adagrad,
    lr_decay="lr_decay", initial_accumulator_value="accumulator", eps="epsilon",
)  # fmt: skip
ADAM_NAMES = {"betas": "beta1 beta2", "eps": "epsilon"}


def amsgrad(op: Any, tensors: Any, **option: bool) -> optim.Optimizer:
    kind = optim.AdamW if op.decoupled else optim.Adam
    return made(kind, op, tensors, amsgrad=True, **ADAM_NAMES, **option)


KINDS: Mapping[str, Kind] = {
    "GradientDescent": Kind(partial(made, optim.SGD)),
    "Momentum": Kind(momentum, ("momentum_buffer",)),
    "Nesterov": Kind(partial(momentum, nesterov=True), ("momentum_buffer",)),
    "AdaGrad": Kind(adagrad, ("sum",)),
    "RMSProp": Kind(partial(made, optim.RMSprop, alpha="rho", eps="epsilon"), ("square_avg",)),
    "Adam": Kind(partial(made, optim.Adam, **ADAM_NAMES), ("exp_avg", "exp_avg_sq")),
    "AdamW": Kind(partial(made, optim.AdamW, **ADAM_NAMES), ("exp_avg", "exp_avg_sq")),
    "AMSGrad": Kind(amsgrad, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
}
COUPLED = {"decoupled": False}
HEAVY_BALL = COUPLED | {"lr_in_velocity": False}
ADAM = {"epsilon_hat": False, "bias_correction": True}


class TorchUpdater(Updater):
    """An optimizer of `torch.optim`, or of its kind; it overwrites its parameters.

    `zero_grad` documents that a parameter whose gradient is None is skipped. Whatever is 1 after
    the first step and 2 after the second, in its state or in a group, is the number of steps.
    """

    kinds: ClassVar[Mapping[str, Kind]] = KINDS
    fixed = {  # noqa: RUF012 (a table)
        "GradientDescent": COUPLED,
        "Momentum": HEAVY_BALL,
        "Nesterov": HEAVY_BALL | {"dampening": 0.0},
        "AdaGrad": COUPLED | {"epsilon_inside": False},
        "RMSProp": COUPLED | {"epsilon_inside": False},
        "Adam": COUPLED | ADAM,
        "AdamW": {"decoupled": True} | ADAM,
        "AMSGrad": ADAM | {"largest_corrected": False},
    }
    skips_absent = True

    def __init__(self, op: Any, parameters: Mapping[str, Tensor]) -> None:
        super().__init__(op, parameters)
        self._kind = kind_of(self, op)
        self._op = op
        self._parameters = {
            name: w.detach().clone().requires_grad_() for name, w in parameters.items()
        }
        self._optimizer = self._kind.make(op, list(self._parameters.values()))
        self._t = 0

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {name: w.detach() for name, w in self._parameters.items()}

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        for name, w in self._parameters.items():
            w.grad = gradients.get(name)
        self._optimizer.step()
        self._t += 1

    def scale_lr(self, factor: float, *names: str) -> None:
        chosen = {id(self._parameters[name]) for name in names or self._parameters}
        for group in list(self._optimizer.param_groups):
            inside = [w for w in group["params"] if id(w) in chosen]
            rest = [w for w in group["params"] if id(w) not in chosen]
            if inside and rest:
                group["params"] = rest
                lr = group["lr"] * factor
                self._optimizer.add_param_group({**group, "params": inside, "lr": lr})
            elif inside:
                group["lr"] *= factor

    def resumed(self) -> "TorchUpdater":
        file, other = io.BytesIO(), type(self)(self._op, self.parameters)
        torch.save(self._optimizer.state_dict(), file)
        file.seek(0)
        names = {id(w): name for name, w in self._parameters.items()}
        groups = [[names[id(w)] for w in g["params"]] for g in self._optimizer.param_groups]
        other.load(self._t, groups, torch.load(file))
        return other

    def load(self, t: int, groups: Sequence[Sequence[str]], state: dict[str, Any]) -> None:
        """Go on after `t` steps, from an optimizer's `state_dict` whose groups had these names."""
        tensors = [{"params": [self._parameters[name] for name in names]} for names in groups]
        self._optimizer, self._t = self._kind.make(self._op, tensors), t
        self._optimizer.load_state_dict(state)

    def state(self) -> tuple[int, Slots]:
        states = {name: self._optimizer.state[w] for name, w in self._parameters.items()}
        slots = self._kind.slots if self._t else ()  # torch makes them in the first step
        return self._t, {
            name: tuple(state[slot] for slot in slots) for name, state in states.items()
        }

    def restore(self, t: int, slots: Slots) -> None:
        self._t = t
        of_each, of_group, constant, moving = self._counters()
        if t and moving:
            raise Unsupported(
                f"its state has {' and '.join(moving)}, too, which no slot of its kind is, nor a "
                "number of steps: an updater of yours restores it by a method `restore`"
            )
        for name, w in self._parameters.items():
            state = dict(zip(self._kind.slots, (x.clone() for x in slots[name]), strict=True))
            if t or of_each:  # SGD knows its first step by having no velocity
                self._optimizer.state[w] = state | constant | counted(of_each, t)
        for group in self._optimizer.param_groups:
            group.update(counted(of_group, t))

    def _counters(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]:
        """What counts steps for each parameter, and for a group, by what two steps leave; of what
        else there is besides the slots, the numbers that stay, and the names of all others.
        """
        like = next(iter(self._parameters.values()))
        w = torch.ones(1, dtype=like.dtype, device=like.device, requires_grad=True)
        w.grad = torch.ones_like(w)
        optimizer = self._kind.make(self._op, [w])
        (group,) = optimizer.param_groups
        optimizer.step()
        before = {k: float(x) for k, x in numbers(optimizer.state[w]).items()}
        of_one = numbers(group, 1).keys()
        optimizer.step()
        state, of_two = optimizer.state[w], numbers(group, 2)
        of_each = {k: x for k, x in numbers(state, 2).items() if before.get(k) == 1}
        others = state.keys() - {*self._kind.slots, *of_each}
        if others and (missing := [name for name in self._kind.slots if name not in state]):
            raise ValueError(
                f"its state has no {' and no '.join(missing)}, the slots of the kind "
                f"{self._op.name}: it has {', '.join(state)}"
            )
        same = {k: x for k, x in numbers(state).items() if k in others and before.get(k) == x}
        moving = sorted(k for k in others - same.keys() if state[k] is not None)
        return of_each, {k: of_two[k] for k in of_two.keys() & of_one}, same, moving


def numbers(state: Mapping[str, Any], number: float | None = None) -> dict[str, Any]:
    """What is a number, or this one."""
    return {
        name: value
        for name, value in state.items()
        if (isinstance(value, int | float) or (isinstance(value, Tensor) and value.ndim == 0))
        and number in (None, value)
    }


def counted(those: Mapping[str, Any], t: int) -> dict[str, Any]:
    """Counters like those, after `t` steps: one of few bits stays where 1 more is too little."""
    return {
        name: torch.full_like(value, min(t, largest_count(value.dtype)))
        if isinstance(value, Tensor)
        else type(value)(t)
        for name, value in those.items()
    }


def largest_count(dtype: torch.dtype) -> int:
    """The number to which a counter of this dtype gets by steps of 1."""
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps)
    return int(torch.iinfo(dtype).max)


def with_option(**option: bool) -> dict[str, Kind]:
    """The kinds, made with an option of theirs."""
    return {name: replace(kind, make=partial(kind.make, **option)) for name, kind in KINDS.items()}


class TorchForeach(TorchUpdater):
    """All parameters of a group at once: what `torch.optim` does on a GPU."""

    kinds = with_option(foreach=True)
    spoils = {  # noqa: RUF012 (a table)
        "Nesterov": "torch's foreach SGD adds Nesterov's momentum to the gradients themselves"
    }


KNOWN = torch.__version__.startswith(("2.12.", "2.13."))
"""Whether this version has the known failure of fused SGD."""


class TorchFused(TorchUpdater):
    """A kernel for each group. RMSprop has none.

    On a GPU they refuse a gradient whose strides are not its parameter's.
    """

    kinds = with_option(fused=True)
    del kinds["RMSProp"]
    misreads = "torch's fused optimizers misread, or refuse, gradients of other strides"
    stuck = "torch's fused SGD moves no whole vector of 16-bit parameters"

    def __init__(self, op: Any, parameters: Mapping[str, Tensor]) -> None:
        if self.halts(op.name, *parameters.values()):
            raise Unsupported(f"known failure: {self.stuck} (pytorch/pytorch#191763)")
        super().__init__(op, parameters)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        with self._where_there_is_one():
            super().step(gradients)

    def restore(self, t: int, slots: Slots) -> None:
        with self._where_there_is_one():
            super().restore(t, slots)

    @contextmanager
    def _where_there_is_one(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if "supported devices" not in str(error):
                raise
            raise Unsupported(f"torch has no fused {self._op.name} for this device") from None

    @classmethod
    def halts(cls, rule: str, *parameters: Tensor) -> bool:
        """Whether the kernel of this rule is known not to move all of such parameters."""
        short = any(w.dtype.itemsize == 2 and w.device.type == "cpu" for w in parameters)
        return KNOWN and short and rule in ("GradientDescent", "Momentum", "Nesterov")


class TorchMaximize(TorchUpdater):
    """Up the gradient, which has the other sign here: the same steps."""

    kinds = with_option(maximize=True)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        super().step({name: -g for name, g in gradients.items()})


BLOCK = 2**17
"""Elements of a block: what a rule makes on the way fits into a core's cache."""


class TorchReference(ReferenceUpdater):
    """The reference rules on PyTorch's tensors; it overwrites its parameters.

    A rule makes a dozen arrays on the way. On a CPU it goes block by block, or each of them would
    travel to memory and back. The slots stay in blocks, each what the rule made last.
    """

    xp = torch

    def __init__(self, op: Any, parameters: Mapping[str, Tensor]) -> None:
        form = torch.contiguous_format
        owned = {name: w.detach().clone(memory_format=form) for name, w in parameters.items()}
        super().__init__(op, owned)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        self._t += 1
        for name, blocks in self._blocks.items():
            for block, g in zip(blocks, in_blocks(gradients[name]), strict=True):
                w, *slots = block
                new, *block[1:] = self.rule.apply(torch, self._t, w, g, *slots)
                w.copy_(new)

    def state(self) -> tuple[int, Slots]:
        return self._t, {
            name: tuple(
                torch.cat(slot).view_as(self._parameters[name])
                for slot in list(zip(*blocks, strict=True))[1:]
            )
            for name, blocks in self._blocks.items()
        }

    def restore(self, t: int, slots: Slots) -> None:
        self._t = t
        self._blocks = {
            name: [list(block) for block in zip(*map(in_blocks, (w, *slots[name])), strict=True)]
            for name, w in self._parameters.items()
        }


def in_blocks(array: Tensor) -> tuple[Tensor, ...]:
    """A flat view of what is contiguous, cut where it lies on a CPU."""
    flat = array.reshape(-1)
    whole = max(1, len(flat))
    blocks: tuple[Tensor, ...] = flat.split(BLOCK if array.device.type == "cpu" else whole)
    return blocks


rows = Table()


@rows.native(*KINDS)
def step(op: Any, w: Tensor, g: Tensor, *slots: Tensor) -> tuple[Tensor, ...]:
    return one_step(TorchUpdater, op, w, g, *slots)
