"""`vjp_again`: one forward pass, two backward passes through it, and the last one's gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d5test.worker.worker import load


def of_torch(calls: list[str]) -> Callable[..., Any]:
    import torch

    class Spent(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            calls.append("forward")
            ctx.save_for_backward(torch.ones_like(x))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            calls.append("backward")
            (kept,) = ctx.saved_tensors
            kept.data.mul_(2)
            return dy * kept

    return Spent.apply


def of_tensorflow(calls: list[str]) -> Callable[..., Any]:
    import tensorflow as tf

    @tf.custom_gradient  # type: ignore[misc]
    def spent(x: Any) -> Any:
        calls.append("forward")

        def pull(dy: Any) -> Any:
            calls.append("backward")
            return dy * 2.0 ** calls.count("backward")

        return tf.identity(x), pull

    return spent


def of_jax(calls: list[str]) -> Callable[..., Any]:
    import jax

    @jax.custom_vjp
    def spent(x: Any) -> Any:
        return x

    def forward(x: Any) -> Any:
        calls.append("forward")
        return x, None

    def pull(_: Any, dy: Any) -> Any:
        calls.append("backward")
        return (dy * 2.0 ** calls.count("backward"),)

    spent.defvjp(forward, pull)
    return spent


@pytest.mark.parametrize(
    ("target", "made"),
    [
        ("d5test.backends.torch:Torch", of_torch),
        ("d5test.backends.tensorflow:TensorFlow", of_tensorflow),
        ("d5test.backends.jax:Jax", of_jax),
    ],
)
def test_the_gradients_are_those_of_the_second_pass(target: str, made: Any) -> None:
    pytest.importorskip(target.partition(":")[0].rpartition(".")[2])
    backend, calls = load(target)(), list[str]()
    x, dy = (backend.put(np.float32([v, v]), "float32") for v in (1, 3))
    _, (dx,) = backend.vjp_again(made(calls), [x], [dy], [0])
    assert calls == ["forward", "backward", "backward"]
    assert backend.get(dx)[0].tolist() == [12, 12]


def test_a_backend_with_a_vjp_of_its_own_does_not_inherit_a_second_pass() -> None:
    from d5test.backends.jax import Jax
    from d5test.worker.facts import derivatives

    class Own(Jax):
        vjp = Jax.vjp

    class Both(Own):
        vjp_again = Jax.vjp_again

    assert derivatives(Jax) == derivatives(Both) == ("jvp", "hvp", "vjp_again")
    assert derivatives(Own) == ("jvp", "hvp")
