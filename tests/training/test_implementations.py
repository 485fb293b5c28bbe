"""What is known of optimizers that frameworks have still holds; once it does not, it goes.

Of torch its fused implementations on a CPU, of Optax its adagrad in float16.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import optax
import pytest
import torch

from d5test.backends.base import Unsupported
from d5test.backends.jax.optimizers import OptaxUpdater
from d5test.backends.torch.optimizers import TorchFused, TorchUpdater
from d5test.backends.updater import Kind
from d5test.reference.optimizers import OPTIMIZERS, AdaGrad
from d5test.reference.steps import as_step


@pytest.mark.parametrize("rule", [name for name in OPTIMIZERS if name in TorchFused.kinds])
def test_strides_of_a_gradient_are_ignored(rule: str) -> None:
    assert TorchFused.misreads
    step = as_step(OPTIMIZERS[rule](**TorchFused.fixed[rule]))
    gradient = (torch.arange(6.0) - 2.5).reshape(3, 2).t()
    after = []
    for kind in (TorchUpdater, TorchFused):
        for g in (gradient, gradient.contiguous()):
            updater = kind(step, {"w": torch.full((2, 3), 0.5)})
            updater.step({"w": g})
            after.append(updater.parameters["w"])
    strided, contiguous, fused_strided, fused = after
    torch.testing.assert_close(strided, contiguous)
    torch.testing.assert_close(fused, contiguous)
    assert not torch.allclose(fused_strided, contiguous)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_whole_vectors_of_16_bits_are_not_moved_by_sgd(dtype: torch.dtype) -> None:
    assert TorchFused.halts("Momentum", torch.zeros(1, dtype=dtype))
    assert not TorchFused.halts("Adam", torch.zeros(1, dtype=dtype))
    w = torch.ones(64, dtype=dtype, requires_grad=True)
    w.grad = torch.full_like(w, 0.5)
    torch.optim.SGD([w], lr=0.25, fused=True).step()
    assert w.min() == w.max() == 1


def test_a_device_without_a_fused_kernel_is_unsupported() -> None:
    """As a GPU is of Adagrad."""
    step = as_step(AdaGrad(**TorchFused.fixed["AdaGrad"]))
    updater = TorchFused(step, {"w": torch.zeros(2, device="meta")})
    with pytest.raises(Unsupported, match="no fused AdaGrad for this device"):
        updater.step({"w": torch.zeros(2, device="meta")})


def test_a_gradient_whose_square_underflows_does_not_move_adagrad() -> None:
    """In float32 the same gradient moves the parameter by a tenth of the learning rate."""
    moved = {}
    for dtype in (jnp.float16, jnp.float32):
        adagrad = optax.adagrad(0.125, initial_accumulator_value=0.0, eps=2.0**-20)
        state = adagrad.init(jnp.ones(1, dtype))
        updates, _ = adagrad.update(jnp.full(1, 1e-4, dtype), state)
        moved[dtype] = float(updates[0])
    assert moved[jnp.float16] == 0
    assert moved[jnp.float32] == pytest.approx(-0.0127, rel=0.01)
    step = as_step(AdaGrad(**OptaxUpdater.fixed["AdaGrad"]))
    with pytest.raises(Unsupported, match="underflows in float16"):
        OptaxUpdater(step, {"w": jnp.ones(1, jnp.float16)})


class Counting(torch.optim.Optimizer):
    """It counts steps from `begin` on, for each parameter, or for a group."""

    def __init__(self, parameters: Any, begin: Any, of_group: bool) -> None:
        super().__init__(parameters, {"lr": 1.0, "k": 0})
        self.begin, self.of_group = begin, of_group

    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if self.of_group:
                group["k"] += 1
                continue
            for w in group["params"]:
                self.state[w]["t"] = self.state[w].get("t", self.begin) + 1
                self.state[w]["scale"] = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("begin", "of_group", "t", "counts"),
    [
        (torch.tensor(0.0), False, 9, 10),
        (torch.tensor(0), False, 9, 10),
        (0, False, 9, 10),
        (0, True, 9, 10),
        (torch.tensor(0.0, dtype=torch.bfloat16), False, 999, 256),
        (torch.tensor(0, dtype=torch.int8), False, 126, 127),
    ],
)
def test_whatever_counts_steps_goes_on(begin: Any, of_group: bool, t: int, counts: int) -> None:
    class Updater(TorchUpdater):
        kinds: ClassVar = {"Adam": Kind(lambda op, tensors: Counting(tensors, begin, of_group))}

    step = as_step(OPTIMIZERS["Adam"](**TorchUpdater.fixed["Adam"]))
    updater = Updater(step, {"w": torch.zeros(2), "b": torch.zeros(3)})
    updater.restore(t, {"w": (), "b": ()})
    updater.step({name: torch.ones_like(w) for name, w in updater.parameters.items()})
    optimizer = updater._optimizer
    (group,) = optimizer.param_groups
    if of_group:
        assert group["k"] == counts
        return
    numbers = [optimizer.state[w]["t"] for w in group["params"]]
    assert "scale" not in updater._counters()[0]
    assert [type(number) for number in numbers] == [type(begin)] * 2
    assert [int(number) for number in numbers] == [counts] * 2


def test_each_whole_number_of_a_state_counts_steps() -> None:
    class State(NamedTuple):
        steps: Any
        small: Any
        scale: Any

    def init(parameters: Any) -> State:
        return State(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int8), jnp.ones(()))

    rule = optax.GradientTransformation(init, lambda g, state, w=None: (g, state))

    class Updater(OptaxUpdater):
        kinds: ClassVar = {"Adam": Kind(lambda optax, op: rule)}

    updater = Updater(
        as_step(OPTIMIZERS["Adam"](**OptaxUpdater.fixed["Adam"])), {"w": jnp.ones(2)}
    )
    updater.restore(999, {"w": ()})
    assert [float(x) for x in updater._state] == [999, 127, 1]


class Weighing(torch.optim.Adam):
    """It keeps something besides its slots and the number of its steps."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for state in self.state.values():
            state["weight"] = 0.75 * state.get("weight", 1.0)


def with_slots(*slots: str, rule: str = "Adam") -> type[TorchUpdater]:
    kind = Kind(lambda op, tensors: Weighing(tensors, lr=op.lr), slots)
    return type("Mine", (TorchUpdater,), {"kinds": {rule: kind}, "fixed": {}})


def test_what_is_neither_a_slot_nor_a_number_of_steps_is_not_restored() -> None:
    parameters = {"w": torch.ones(3)}
    updater = with_slots("exp_avg", "exp_avg_sq")(as_step(OPTIMIZERS["Adam"]()), parameters)
    slots = {"w": (torch.zeros(3), torch.zeros(3))}
    updater.restore(0, slots)
    with pytest.raises(Unsupported, match=r"its state has weight, too, .* by a method"):
        updater.restore(1, slots)


def test_a_slot_of_another_name_is_an_error_that_names_those_there_are() -> None:
    updater = with_slots("m", "v")(as_step(OPTIMIZERS["Adam"]()), {"w": torch.ones(3)})
    words = "has no m and no v, the slots of the kind Adam: it has step, exp_avg, exp_avg_sq, we"
    with pytest.raises(ValueError, match=words):
        updater.restore(0, {"w": (torch.zeros(3), torch.zeros(3))})


def test_a_kind_of_another_name_is_an_error_where_the_rule_is_a_users_own() -> None:
    class Own(OPTIMIZERS["Adam"]):  # type: ignore[misc,name-defined]
        """A rule of a user's."""

    updater, parameters = with_slots(rule="Adm"), {"w": torch.ones(3)}
    with pytest.raises(ValueError, match="Mine has no Own: its `kinds` have Adm"):
        updater(as_step(Own()), parameters)
    with pytest.raises(Unsupported, match="Mine has no Adam"):
        updater(as_step(OPTIMIZERS["Adam"]()), parameters)
