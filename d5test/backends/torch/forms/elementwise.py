"""Forms of functions of each element."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.torch.elementwise import HARD, SELU, slopes
from d5test.backends.torch.forms.calls import each, in_place, into_broadcast, run, with_buffers

forms = Forms()
UNARY: Mapping[str, tuple[str, ...]] = {
    "Sigmoid": ("sigmoid", "special.expit"),
    "Tanh": ("tanh",),
    "Exp": ("exp",),
    "Log": ("log",),
    "Sqrt": ("sqrt",),
    "Erf": ("erf", "special.erf"),
    "Abs": ("abs", "absolute"),
    "Neg": ("neg", "negative"),
    "Reciprocal": ("reciprocal",),
}
BINARY: Mapping[str, tuple[str, ...]] = {
    "Add": ("add",),
    "Sub": ("sub", "subtract"),
    "Mul": ("mul", "multiply"),
    "Div": ("div", "divide", "true_divide"),
    "Pow": ("pow",),
}
LISTS = (*UNARY, "Add", "Sub", "Mul", "Div")
"""Operators of which torch has a function of lists."""


def enter(operator: str, name: str, *others: str) -> None:
    """The forms of a function of torch that is a method, too, and of others by another name."""
    function = getattr(torch, name)

    def written(op: Any, *tensors: Tensor, strided: bool) -> Tensor:
        return into_broadcast(function, *tensors, strided=strided)

    forms.same(
        operator,
        {
            f"Tensor.{name}": getattr(Tensor, name),
            f"Tensor.{name}_": in_place(getattr(Tensor, f"{name}_")),
        },
    )
    for other in others:
        *path, last = other.split(".")
        home: Any = getattr(torch, path[0]) if path else torch
        forms.same(operator, {f"torch.{other}": getattr(home, last)})
    with_buffers(forms, operator, f"torch.{name}", written)
    if operator in LISTS:
        forms.same(operator, {f"torch._foreach_{name}": each(getattr(torch, f"_foreach_{name}"))})


for _operator, _names in {**UNARY, **BINARY}.items():
    enter(_operator, *_names)

forms.same(
    "Relu",
    {
        "torch.nn.functional.relu": F.relu,
        "torch.nn.functional.relu(inplace=True)": in_place(partial(F.relu, inplace=True)),
        "torch.nn.ReLU": nn.ReLU(),
        "Tensor.relu_": in_place(Tensor.relu_),
        "torch.clamp_min": lambda x: torch.clamp_min(x, 0),
    },
)
forms.same("Sigmoid", {"torch.nn.Sigmoid": nn.Sigmoid()})
forms.same("Tanh", {"torch.nn.Tanh": nn.Tanh()})
# as the row of Gelu, whose function it is
forms.add("Gelu", "torch.nn.GELU", arithmetic="F", ulps={"erf": 8.0, "add": 4.0}, flushes=True)(
    planned(lambda op, x: nn.GELU(approximate=op.approximate))
)
forms.same("Softplus", {"torch.nn.Softplus": nn.Softplus()})
forms.same(
    "Softplus",
    {
        "torch.nn.functional.softplus(threshold=2)": partial(F.softplus, threshold=2),
        "torch.nn.Softplus(threshold=2)": nn.Softplus(threshold=2),
    },
    contract="linear above 2",
    source="https://docs.pytorch.org/docs/2.13/generated/torch.nn.Softplus.html",
)
for _operator, _module, _function, _attributes in (
    ("HardSwish", nn.Hardswish, F.hardswish, {}),
    ("Mish", nn.Mish, F.mish, {}),
    ("Selu", nn.SELU, F.selu, {"alpha": SELU[:1], "gamma": SELU[1:]}),
    ("HardSigmoid", nn.Hardsigmoid, F.hardsigmoid, {"alpha": HARD[:1], "beta": HARD[1:]}),
):
    forms.same(
        _operator,
        {
            f"torch.nn.{_module.__name__}": _module(),
            f"torch.nn.functional.{_function.__name__}(inplace=True)": in_place(
                partial(_function, inplace=True)
            ),
        },
        attributes=_attributes,
    )


def by_alpha(make: Callable[[float], Plan], op: Any, x: Tensor) -> Plan:
    return make(op.alpha)


def _with(cls: type[nn.Module], more: tuple[Any, ...], alpha: float) -> Plan:
    module: Plan = cls(alpha, *more)
    return module


def changed(function: Plan, *more: Any) -> Callable[[float], Plan]:
    """`function(y, alpha, *more)` writes into y."""

    def make(alpha: float) -> Plan:
        if alpha < 0 and function is F.leaky_relu_:
            raise Unsupported("torch differentiates no negative slope in place")
        return in_place(lambda y: function(y, alpha, *more))

    return make


for _operator, _module, _name, _more in (
    ("LeakyRelu", nn.LeakyReLU, "leaky_relu_", ()),
    ("Elu", nn.ELU, "elu_", ()),
    ("Celu", nn.CELU, "celu_", ()),
    ("ThresholdedRelu", nn.Threshold, "threshold_", (0.0,)),
):
    forms.add(_operator, f"torch.nn.{_module.__name__}")(
        planned(partial(by_alpha, partial(_with, _module, _more)))
    )
    forms.add(_operator, f"torch.nn.functional.{_name}")(
        planned(partial(by_alpha, changed(getattr(F, _name), *_more)))
    )


def with_number(function: Plan, number: float, x: Tensor, other: Tensor) -> Tensor:
    """`function` takes the number that stands in all of `other`."""
    if torch.broadcast_shapes(x.shape, other.shape) != x.shape:
        raise Unsupported("a number has no shape that the result could take")
    result: Tensor = function(x, number)
    return result


NUMBERS: Mapping[str, tuple[float, ...]] = {
    "Add": (0.75,),
    "Sub": (-1.5,),
    "Mul": (0.3,),
    "Div": (3.0,),
    "Pow": (2.0, 0.5, 3.0, -1.0),  # those of which torch has code of its own
}
for _operator, _numbers in NUMBERS.items():
    (_name, *_) = BINARY[_operator]
    for _number in _numbers:
        _call = partial(with_number, getattr(torch, _name), _number)
        forms.same(_operator, {f"torch.{_name}(x, {_number})": _call}, constants={1: _number})


for _operator, _functions in {
    "Max": {"torch.max": torch.max, "torch.fmax": torch.fmax, "Tensor.maximum": Tensor.maximum},
    "Min": {"torch.min": torch.min, "torch.fmin": torch.fmin, "Tensor.minimum": Tensor.minimum},
    "Sum": {"Tensor.add_": in_place(Tensor.add_)},
}.items():
    for _title, _function in _functions.items():
        forms.same(_operator, {_title: _function}, where={"inputs": 2})


BOUNDED = {"inputs": {"min": 2}, "present1": True}
"""torch wants a bound."""


def clipped(function: Plan, op: Any, x: Tensor, *limits: Tensor | None) -> Plan:
    """`function` takes numbers as bounds."""
    numbers = [None if t is None else t.item() for t in limits]
    return lambda x, *_: function(x, *numbers)


forms.add("Clip", "torch.clamp(x, float, float)", stopped=(1, 2), values=(1, 2), where=BOUNDED)(
    planned(partial(clipped, torch.clamp))
)
forms.add("Clip", "Tensor.clamp_", stopped=(1, 2), values=(1, 2), where=BOUNDED)(
    planned(partial(clipped, lambda x, *numbers: in_place(lambda y: y.clamp_(*numbers))(x)))
)
forms.same("Where", {"Tensor.where": lambda condition, a, b: a.where(condition, b)})


@forms.add("PRelu", "torch.nn.PReLU")
@planned
def prelu(op: Any, x: Tensor, slope: Tensor) -> Plan:
    module = nn.PReLU(slopes(x, slope), dtype=x.dtype)
    return lambda x, slope: run(module, x, weight=slope.reshape(-1))
