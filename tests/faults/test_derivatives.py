"""Derivatives that PyTorch's users write themselves, wrong and honest, before the checks."""

from typing import Any

import pytest

from d5test.backends.base import Row
from d5test.reference.operators import OPERATORS
from tests.faults.judging import findings
from tests.faults.score import Local

torch = pytest.importorskip("torch")
CHECKS = ("forward", "gradient", "forward_mode", "second_gradient")


class Product(torch.autograd.Function):  # type: ignore[misc]
    """A product of tensors of one shape, with all derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004 (their names)
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, dz: Any) -> Any:
        x, y = ctx.saved_tensors
        return dz * y, dz * x

    @staticmethod
    def jvp(ctx: Any, dx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        return dx * y + x * dy


class Forgetful(Product):
    @staticmethod
    def jvp(ctx: Any, dx: Any, dy: Any) -> Any:  # noqa: ARG004 (that is the fault)
        return dx * ctx.saved_tensors[1]


class Detached(Product):
    @staticmethod
    def backward(ctx: Any, dz: Any) -> Any:
        x, y = ctx.saved_tensors
        return dz * y.detach(), dz * x.detach()


def found(product: Any) -> set[str]:
    from d5test.backends.torch import Torch

    def multiply(op: Any, x: Any, y: Any) -> Any:
        return product.apply(*torch.broadcast_tensors(x, y))

    backend = type("Own", (Torch,), {"rows": {"Mul": Row(multiply)}})
    return {*findings(Local("own", backend()), OPERATORS["Mul"], CHECKS, count=8)}


@pytest.mark.parametrize(
    ("product", "checks"),
    [(Product, set()), (Forgetful, {"forward_mode"}), (Detached, {"second_gradient"})],
)
def test_derivatives_of_a_users_own(product: Any, checks: set[str]) -> None:
    assert found(product) == checks


def moments(x: Any, axes: Any, stop: bool) -> Any:
    mean = x.mean(axes, keepdim=True)
    centred = x - (mean.detach() if stop else mean)
    return mean, (centred * centred).mean(axes, keepdim=True)


@pytest.mark.parametrize("stop", [False, True])
def test_a_variance_about_a_mean_that_is_detached_has_a_right_gradient_alone(stop: bool) -> None:
    from d5test.backends.torch import Torch

    def normalise(op: Any, x: Any, scale: Any, shift: Any) -> Any:
        axes = tuple(range(2, x.ndim))
        mean, variance = moments(x, axes, stop)
        shape = (-1, *(1 for _ in axes))
        normal = (x - mean) * (variance + op.epsilon).rsqrt()
        return normal * scale.reshape(shape) + shift.reshape(shape)

    backend = type("Own", (Torch,), {"rows": {"InstanceNormalization": Row(normalise)}})
    operator = OPERATORS["InstanceNormalization"]
    seen = findings(Local("own", backend()), operator, CHECKS, count=2)
    assert {*seen} == ({"second_gradient"} if stop else set())
