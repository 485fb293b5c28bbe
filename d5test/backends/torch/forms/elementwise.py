"""Forms of functions of each element."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d5test.backends.base import FLOATS, Forms, Plan, Unsupported, planned
from d5test.backends.torch.elementwise import HARD, SELU, slopes
from d5test.backends.torch.forms.calls import each, in_place, into_broadcast, run, with_buffers
from d5test.dtypes import WHOLE

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
    "Sin": ("sin",),
    "Cos": ("cos",),
    "Tan": ("tan",),
    "Asin": ("asin", "arcsin"),
    "Acos": ("acos", "arccos"),
    "Atan": ("atan", "arctan"),
    "Sinh": ("sinh",),
    "Cosh": ("cosh",),
    "Asinh": ("asinh", "arcsinh"),
    "Acosh": ("acosh", "arccosh"),
    "Atanh": ("atanh", "arctanh"),
    "Floor": ("floor",),
    "Ceil": ("ceil",),
    "Round": ("round",),
    "Sign": ("sign",),
}
BINARY: Mapping[str, tuple[str, ...]] = {
    "Add": ("add",),
    "Sub": ("sub", "subtract"),
    "Mul": ("mul", "multiply"),
    "Div": ("div", "divide", "true_divide"),
    "Pow": ("pow",),
}
LISTS = {*UNARY, "Add", "Sub", "Mul", "Div"} - {"Asinh", "Acosh", "Atanh"}
"""Operators of which torch has a function of lists."""


def enter(operator: str, name: str, *others: str, **row: Any) -> None:
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
        **row,
    )
    for other in others:
        *path, last = other.split(".")
        home: Any = getattr(torch, path[0]) if path else torch
        forms.same(operator, {f"torch.{other}": getattr(home, last)})
        if not path:
            forms.same(
                operator,
                {
                    f"Tensor.{other}": getattr(Tensor, other),
                    f"Tensor.{other}_": in_place(getattr(Tensor, f"{other}_")),
                },
            )
    for changing in (f"{n}_" for n in (name, *others) if operator in UNARY):
        if hasattr(torch, changing):
            forms.same(operator, {f"torch.{changing}": in_place(getattr(torch, changing))})
    with_buffers(forms, operator, f"torch.{name}", written, **row)
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
        "torch.nn.functional.relu_": in_place(F.relu_),
        "Tensor.relu": Tensor.relu,
        "torch.clamp_min": lambda x: torch.clamp_min(x, 0),
        "torch.clamp_min_": in_place(lambda x: torch.clamp_min_(x, 0)),
        "Tensor.clamp_min": lambda x: x.clamp_min(0),
        "Tensor.clamp_min_": in_place(lambda x: x.clamp_min_(0)),
    },
)
for _operator, _module, _function in (
    ("Sigmoid", nn.Sigmoid, F.sigmoid), ("Tanh", nn.Tanh, F.tanh),
):  # fmt: skip
    forms.same(
        _operator,
        {
            f"torch.nn.{_module.__name__}": _module(),
            f"torch.nn.functional.{_function.__name__}": _function,
        },
    )
# as the row of Gelu, whose function it is
forms.add("Gelu", "torch.nn.GELU", arithmetic="F", ulps={"erf": 8.0, "add": 4.0}, flushes=True)(
    planned(lambda op, x: nn.GELU(approximate=op.approximate))
)
PAGE = "https://docs.pytorch.org/docs/2.13/generated/torch.nn.{}.html"
# above its threshold of 20 the identity, which float64 can tell from it
forms.same("Softplus", {"torch.nn.Softplus": nn.Softplus()}, dtypes=FLOATS[1:])
forms.same(
    "Softplus",
    {
        "torch.nn.functional.softplus(threshold=2)": partial(F.softplus, threshold=2),
        "torch.nn.Softplus(threshold=2)": nn.Softplus(threshold=2),
    },
    contract="linear above 2",
    source=PAGE.format("Softplus"),
)
# torch's constants have 64 bits: ATen/native/Activation.cpp, ATen/native/cpu/Activation.cpp
DOUBLE = "constants in 64 bits"
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
        contract=DOUBLE if _attributes else "",
        source=PAGE.format(_module.__name__) if _attributes else "",
    )
forms.same(
    "Swish",
    {
        "torch.nn.SiLU": nn.SiLU(),
        "torch.nn.functional.silu(inplace=True)": in_place(partial(F.silu, inplace=True)),
    },
    attributes={"alpha": (1.0,)},
)


def shrunk(cls: type[nn.Module], op: Any, x: Tensor) -> Plan:
    if cls is nn.Softshrink and op.bias != op.lambd:
        raise Unsupported("torch.nn.Softshrink has its threshold for a bias")
    module: Plan = cls(op.lambd)
    return module


for _name, _where in (("Hardshrink", {"bias": (0.0,)}), ("Softshrink", {})):
    forms.add("Shrink", f"torch.nn.{_name}", attributes=_where)(
        planned(partial(shrunk, getattr(nn, _name)))
    )
forms.same("Softsign", {"torch.nn.Softsign": nn.Softsign()})
forms.same(
    "Selu",
    {"torch.selu": torch.selu, "torch.nn.functional.selu_": in_place(torch.selu_)},
    attributes={"alpha": SELU[:1], "gamma": SELU[1:]},
    contract=DOUBLE,
    source=PAGE.format("SELU"),
)


def by_alpha(make: Callable[[float], Plan], op: Any, x: Tensor) -> Plan:
    return make(op.alpha)


def _with(cls: type[nn.Module], more: tuple[Any, ...], alpha: float) -> Plan:
    module: Plan = cls(alpha, *more)
    return module


SLOPED = (F.leaky_relu_, F.elu_, F.celu_)
"""Functions whose slope in place is computed from what they have written."""


def changed(function: Plan, *more: Any) -> Callable[[float], Plan]:
    """`function(y, alpha, *more)` writes into y."""

    def make(alpha: float) -> Plan:
        if alpha < 0 and function in SLOPED:
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
    "Max": {
        "torch.max": torch.max, "Tensor.max": Tensor.max, "torch.fmax": torch.fmax,
        "Tensor.fmax": Tensor.fmax, "Tensor.maximum": Tensor.maximum,
    },
    "Min": {
        "torch.min": torch.min, "Tensor.min": Tensor.min, "torch.fmin": torch.fmin,
        "Tensor.fmin": Tensor.fmin, "Tensor.minimum": Tensor.minimum,
    },
    "Sum": {"Tensor.add_": in_place(Tensor.add_)},
}.items():  # fmt: skip
    for _title, _function in _functions.items():
        forms.same(_operator, {_title: _function}, where={"inputs": 2})


BOUNDED = {"inputs": {"min": 2}, "present1": True}
"""torch wants a bound."""


def clipped(function: Plan, op: Any, x: Tensor, *limits: Tensor | None) -> Plan:
    """`function` takes numbers as bounds."""
    numbers = [None if t is None else t.item() for t in limits]
    return lambda x, *_: function(x, *numbers)


def changed_clipped(function: Plan) -> Plan:
    """`function` writes into its tensor."""
    return lambda x, *numbers: in_place(lambda y: function(y, *numbers))(x)


for _title, _function in (
    ("torch.clamp(x, float, float)", torch.clamp),
    ("torch.clip", torch.clip),
    ("Tensor.clamp", Tensor.clamp),
    ("Tensor.clip", Tensor.clip),
    ("Tensor.clamp_", changed_clipped(Tensor.clamp_)),
    ("Tensor.clip_", changed_clipped(Tensor.clip_)),
    ("torch.clamp_", changed_clipped(torch.clamp_)),
    ("torch.clip_", changed_clipped(torch.clip_)),
):
    forms.add("Clip", _title, stopped=(1, 2), values=(1, 2), where=BOUNDED)(
        planned(partial(clipped, _function))
    )
SIX = {"constants": {1: 0.0, 2: 6.0}, "where": {"inputs": 3, "present1": True, "present2": True}}
for _title, _function in (
    ("torch.nn.functional.relu6", F.relu6),
    ("torch.nn.ReLU6", nn.ReLU6()),
    ("torch.nn.functional.hardtanh", lambda x: F.hardtanh(x, 0.0, 6.0)),
    ("torch.nn.functional.hardtanh_", in_place(lambda x: F.hardtanh_(x, 0.0, 6.0))),
):
    forms.add("Clip", _title, stopped=(1, 2), **SIX)(planned(
        lambda op, *_, function=_function: lambda x, *_: function(x)
    ))  # fmt: skip
forms.same("Where", {"Tensor.where": lambda condition, a, b: a.where(condition, b)})
forms.add("Celu", "torch.celu")(lambda op, x: torch.celu(x, op.alpha))
forms.add("ThresholdedRelu", "torch.threshold")(lambda op, x: torch.threshold(x, op.alpha, 0.0))


@forms.add("PRelu", "Tensor.prelu")
@planned
def prelu_method(op: Any, x: Tensor, slope: Tensor) -> Plan:
    slopes(x, slope)
    return lambda x, slope: x.prelu(slope.reshape(-1))


@forms.add("PRelu", "torch.nn.PReLU")
@planned
def prelu(op: Any, x: Tensor, slope: Tensor) -> Plan:
    module = nn.PReLU(slopes(x, slope), dtype=x.dtype)
    return lambda x, slope: run(module, x, weight=slope.reshape(-1))


for _fmod, _name in enumerate(("remainder", "fmod")):
    enter("Mod", _name, attributes={"fmod": (_fmod,)}, stopped=(1,))
forms.same("Mod", {"a % b": lambda a, b: a % b}, attributes={"fmod": (0,)}, stopped=(1,))

# its functions divide integers truly, but with a rounding_mode, as the row does
forms["Div"] = {name: replace(row, promotes=WHOLE) for name, row in forms["Div"].items()}
