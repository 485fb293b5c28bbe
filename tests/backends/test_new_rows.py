"""A row that a user's class has in place of ours is what the transformations call."""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from d5test.backends.base import Forms, Row, Tried, Unsupported
from d5test.backends.torch import Torch
from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.outcome.fault import Fault
from d5test.outcome.tally import LeftToOthers
from d5test.reference.operators.reductions import Softmax
from tests.faults.score import Local

VMAP, VARIED = "torch.func.vmap", "torch.func.vmap(in_dims=)"


def with_softmax(call: Any, **more: Any) -> type[Torch]:
    """PyTorch with another Softmax."""
    rows = {**Torch.rows, "Softmax": replace(Torch.rows["Softmax"], call=call)}
    return type("Mine", (Torch,), {"rows": rows, **more})


class OfFirstAxis(torch.autograd.Function):  # type: ignore[misc]
    """A softmax that takes the samples of a batched call to lie along the first axis."""

    @staticmethod
    def forward(x: Any, axis: int) -> Any:
        return torch.softmax(x, axis)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.axis = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return y * (dy - (y * dy).sum(ctx.axis, True)), None

    @staticmethod
    def vmap(_info: Any, in_dims: Any, x: Any, axis: int) -> Any:
        return OfFirstAxis.apply(x, axis if axis < 0 else axis + 1), in_dims[0]


class Once(torch.autograd.Function):  # type: ignore[misc]
    """A softmax without any transformation."""

    @staticmethod
    def forward(ctx: Any, x: Any, axis: int) -> Any:
        ctx.axis, y = axis, torch.softmax(x, axis)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return y * (dy - (y * dy).sum(ctx.axis, True)), None


class OnceBatched(torch.autograd.Function):  # type: ignore[misc]
    """An identity without a gradient of batched calls."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(_ctx: Any, _dy: Any) -> Any:
        raise RuntimeError("no gradient here")

    @staticmethod
    def vmap(_info: Any, in_dims: Any, x: Any) -> Any:
        return OnceBatched.apply(x), in_dims[0]


def judged(backend: type[Torch], check: str, form: str = "") -> Any:
    """What a check says of a small case."""
    case = Case(Softmax(axis=0), (Tensor((3, 4)),), seed=5, form=form)
    return CHECKS[check].run(Local("mine", backend()), case)


def test_it_is_called_under_vmap() -> None:
    mine = with_softmax(lambda op, x: OfFirstAxis.apply(x, op.axis))
    judged(mine, "forward")
    judged(mine, "forms", VMAP)
    with pytest.raises(Fault, match="the result is wrong"):
        judged(mine, "forms", VARIED)


def test_what_is_wrong_in_a_plain_call_is_left_to_that() -> None:
    wrong = with_softmax(lambda op, x: torch.softmax(x, op.axis) * 1.01)
    with pytest.raises(LeftToOthers, match="Softmax is wrong in a plain call") as left:
        judged(wrong, "forms", VMAP)
    assert (left.value.check, left.value.case.form) == ("forward", "")


def test_a_function_that_cannot_be_transformed_is_unsupported() -> None:
    once = with_softmax(lambda op, x: Once.apply(x, op.axis))
    judged(once, "forward")
    judged(once, "gradient")
    with pytest.raises(Unsupported, match="setup_context"):
        judged(once, "forms", VMAP)
    with pytest.raises(Unsupported, match="setup_context"):
        judged(once, "forward_mode")
    with pytest.raises(Unsupported, match="once_differentiable"):
        judged(once, "second_gradient")


def test_so_is_a_gradient_that_raises() -> None:
    def softmax(op: Any, x: Any) -> Any:
        y = torch.softmax(x, op.axis)
        return OnceBatched.apply(y) if torch._C._functorch.is_batchedtensor(x) else y

    mine = with_softmax(softmax)
    judged(mine, "gradient")
    with pytest.raises(Unsupported, match="no gradient here"):
        judged(mine, "forms", VMAP)


def test_forms_of_its_own_stay() -> None:
    own = Row(lambda op, x: torch.softmax(x, op.axis))
    mine = with_softmax(own.call, forms=Torch.forms.merged(Forms({"Softmax": {VMAP: own}})))
    assert mine.forms["Softmax"][VMAP] is own
    assert isinstance(mine.forms["Softmax"][VARIED].call, Tried)
    assert (
        mine.forms["Softmax"]["torch.softmax(out=)"]
        is Torch.forms["Softmax"]["torch.softmax(out=)"]
    )
    assert mine.forms["Relu"] == Torch.forms["Relu"]


def test_a_subclass_without_rows_has_the_forms_of_its_parent() -> None:
    assert type("Mine", (Torch,), {}).forms is Torch.forms
    none = Forms()
    assert type("Bare", (Torch,), {"forms": none}).forms is none


def test_a_row_may_call_ours_with_another_attribute() -> None:
    ours = Torch.rows["Softmax"].call
    other = with_softmax(lambda op, x: ours(op.with_(axis=1 - op.axis), x.T).T)
    judged(other, "forward")
    mistyped = with_softmax(lambda op, x: ours(op.with_(axes=1), x))
    with pytest.raises(Fault, match="has no attribute 'axes' \\(it has: axis\\)"):
        judged(mistyped, "forward")
