"""Forms of normalisations: modules, without scale or bias, with running statistics."""

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.torch.forms.calls import in_channels_last, run
from d5test.backends.torch.normalisation import CENTRED

forms = Forms()
BATCH = {3: nn.BatchNorm1d, 2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
INSTANCE = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}


def of_rank(modules: dict[int, type[nn.Module]], x: Tensor) -> type[nn.Module]:
    if x.ndim not in modules:
        raise Unsupported(f"torch has no such module for {x.ndim} axes")
    return modules[x.ndim]


def trainable(x: Tensor) -> None:
    """Raise `Unsupported` where torch has too little to train on."""
    if x.numel() == x.shape[1]:
        raise Unsupported("torch trains on more than one value per channel")


# torch normalises by the biased variance and keeps the unbiased one; momentum weighs what is new
KEPT = "https://docs.pytorch.org/docs/2.13/generated/torch.nn.BatchNorm2d.html"


@forms.add(
    "BatchNormalization",
    "torch.nn.functional.batch_norm(running_mean, running_var)",
    attributes={"training_mode": (1,)},
    contract="unbiased running variance",
    source=KEPT,
)
@planned
def running(op: Any, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Plan:
    """The statistics are buffers, in which torch leaves what they are afterwards."""
    trainable(x)
    momentum, epsilon = 1 - op.momentum, op.epsilon

    def call(x: Tensor, scale: Tensor, b: Tensor, *statistics: Tensor) -> tuple[Tensor, ...]:
        mean, var = (t.detach().clone() for t in statistics)
        return F.batch_norm(x, mean, var, scale, b, True, momentum, epsilon), mean, var

    return call


def batch(op: Any, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Plan:
    """The modules, in training and in inference, with their parameters and buffers replaced."""
    make, training = of_rank(BATCH, x), bool(op.training_mode)
    if training:
        trainable(x)
    module = make(x.shape[1], op.epsilon, 1 - op.momentum).train(training)

    def call(x: Tensor, scale: Tensor, b: Tensor, *statistics: Tensor) -> Any:
        mean, var = (t.detach().clone() for t in statistics)
        y = run(module, x, weight=scale, bias=b, running_mean=mean, running_var=var)
        return (y, mean, var) if training else y

    return call


forms.add(
    "BatchNormalization",
    "torch.nn.BatchNorm1d, 2d, 3d",
    contract="unbiased running variance",
    source=KEPT,
    stopped=(3, 4),
)(planned(batch))

forms.add(
    "BatchNormalization", "torch.nn.functional.batch_norm without scale and bias",
    attributes={"training_mode": (0,)}, constants={1: 1.0, 2: 0.0}, stopped=(3, 4),
)(planned(
    lambda op, x, *_: lambda x, scale, b, mean, var: F.batch_norm(
        x, mean.detach(), var.detach(), eps=op.epsilon)
))  # fmt: skip


def last_axes(op: Any, x: Tensor, *parameters: Tensor | None) -> tuple[int, ...]:
    """The axes that are normalised over, if the parameters have just these."""
    shape = tuple(x.shape[op.axis :])
    if any(p is not None and p.shape != shape for p in parameters):
        raise Unsupported("the parameters have the shape that is normalised over")
    return shape


Absent: TypeAlias = Tensor | None


@forms.add(
    "LayerNormalization", "torch.nn.functional.layer_norm without weight and bias", outputs=1,
    arithmetic="S", constants={1: 1.0, 2: 0.0},
)  # fmt: skip
@planned
def layer_without(op: Any, x: Tensor, scale: Tensor, b: Absent = None) -> Plan:
    shape, epsilon = last_axes(op, x, scale, b), op.epsilon
    return lambda x, *_: F.layer_norm(x, shape, eps=epsilon)


@forms.add(
    "LayerNormalization", "torch.nn.functional.layer_norm without weight", outputs=1,
    arithmetic="S", constants={1: 1.0},
)  # fmt: skip
@planned
def layer_biased(op: Any, x: Tensor, scale: Tensor, b: Absent = None) -> Plan:
    shape, epsilon = last_axes(op, x, scale, b), op.epsilon
    return lambda x, scale, b=None: F.layer_norm(x, shape, None, b, epsilon)


@forms.add("LayerNormalization", "torch.nn.LayerNorm", outputs=1, arithmetic="S")
@planned
def layer(op: Any, x: Tensor, scale: Tensor, b: Absent = None) -> Plan:
    shape = last_axes(op, x, scale, b)
    module = nn.LayerNorm(shape, op.epsilon, bias=b is not None)
    return lambda x, scale, b=None: run(module, x, weight=scale, bias=b)


@forms.add("LayerNormalization", "torch.native_layer_norm", outputs=1, arithmetic="S")
@planned
def native_layer(op: Any, x: Tensor, scale: Tensor, b: Absent = None) -> Plan:
    shape, epsilon = last_axes(op, x, scale, b), op.epsilon
    return lambda x, scale, b=None: torch.native_layer_norm(x, shape, scale, b, epsilon)[0]


@forms.add("RMSNormalization", "torch.nn.functional.rms_norm without weight", constants={1: 1.0})
@planned
def rms_without(op: Any, x: Tensor, scale: Tensor) -> Plan:
    shape, epsilon = last_axes(op, x, scale), op.epsilon
    return lambda x, scale: F.rms_norm(x, shape, None, epsilon)


@forms.add("RMSNormalization", "torch.nn.RMSNorm")
@planned
def rms(op: Any, x: Tensor, scale: Tensor) -> Plan:
    module = nn.RMSNorm(last_axes(op, x, scale), op.epsilon)
    return lambda x, scale: run(module, x, weight=scale)


def group(op: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Plan:
    module = nn.GroupNorm(op.num_groups, x.shape[1], op.epsilon)
    return lambda x, scale, bias: run(module, x, weight=scale, bias=bias)


forms.add("GroupNormalization", "torch.nn.GroupNorm", **CENTRED)(planned(group))


forms.add(
    "GroupNormalization", "torch.nn.functional.group_norm without weight and bias",
    constants={1: 1.0, 2: 0.0}, **CENTRED,
)(planned(
    lambda op, *_: lambda x, scale, bias: F.group_norm(x, op.num_groups, eps=op.epsilon)
))  # fmt: skip


def positions(x: Tensor) -> None:
    """Raise `Unsupported` where torch has too little to normalise over."""
    if x.shape[2:].numel() == 1:
        raise Unsupported("torch wants more than one position")


@forms.add("InstanceNormalization", "torch.nn.InstanceNorm1d, 2d, 3d", arithmetic="S")
@planned
def instance(op: Any, x: Tensor, scale: Tensor, b: Tensor) -> Plan:
    positions(x)
    module = of_rank(INSTANCE, x)(x.shape[1], op.epsilon, affine=True)
    return lambda x, scale, b: run(module, x, weight=scale, bias=b)


@forms.add(
    "InstanceNormalization", "torch.nn.functional.instance_norm without weight and bias",
    arithmetic="S", constants={1: 1.0, 2: 0.0},
)  # fmt: skip
@planned
def instance_without(op: Any, x: Tensor, scale: Tensor, b: Tensor) -> Plan:
    positions(x)
    return lambda x, scale, b: F.instance_norm(x, eps=op.epsilon)


@forms.add("LRN", "torch.nn.LocalResponseNorm", attributes={"size": (1, 3, 5)})
@planned
def lrn(op: Any, x: Tensor) -> Plan:
    module: Plan = nn.LocalResponseNorm(op.size, op.alpha, op.beta, op.bias)
    return module


@forms.add(
    "BatchNormalization", "torch.batch_norm", attributes={"training_mode": (0,)}, stopped=(3, 4)
)
@planned
def inferred(op: Any, x: Tensor, *_: Tensor) -> Plan:
    epsilon = op.epsilon
    return lambda x, scale, b, mean, var: torch.batch_norm(
        x, scale, b, mean.detach(), var.detach(), False, 0.1, epsilon, False
    )


@forms.add(
    "BatchNormalization", "torch.nn.BatchNorm2d, 3d in channels_last", stopped=(3, 4),
    contract="unbiased running variance", source=KEPT, where={"rank0": {"min": 4, "max": 5}},
)  # fmt: skip
@planned
def batch_last(op: Any, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Plan:
    make = batch(op, x, scale, b, mean, var)
    return lambda x, *parameters: make(in_channels_last(x), *parameters)


@forms.add(
    "GroupNormalization", "torch.nn.GroupNorm in channels_last", **CENTRED,
    where={"rank0": {"min": 4, "max": 5}},
)  # fmt: skip
@planned
def group_last(op: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Plan:
    make = group(op, x, scale, bias)
    return lambda x, *parameters: make(in_channels_last(x), *parameters)


@forms.add("LayerNormalization", "torch.layer_norm", outputs=1, arithmetic="S")
@planned
def plain_layer(op: Any, x: Tensor, scale: Tensor, b: Absent = None) -> Plan:
    shape, epsilon = last_axes(op, x, scale, b), op.epsilon
    return lambda x, scale, b=None: torch.layer_norm(x, shape, scale, b, epsilon)


@forms.add("RMSNormalization", "torch.rms_norm")
@planned
def plain_rms(op: Any, x: Tensor, scale: Tensor) -> Plan:
    shape, epsilon = last_axes(op, x, scale), op.epsilon
    return lambda x, scale: torch.rms_norm(x, shape, scale, epsilon)


forms.add("GroupNormalization", "torch.group_norm", **CENTRED)(planned(
    lambda op, *_: lambda x, scale, bias: torch.group_norm(
        x, op.num_groups, scale, bias, op.epsilon)
))  # fmt: skip


@forms.add("InstanceNormalization", "torch.instance_norm", arithmetic="S")
@planned
def plain_instance(op: Any, x: Tensor, *_: Tensor) -> Plan:
    positions(x)
    return lambda x, scale, b: torch.instance_norm(
        x, scale, b, None, None, True, 0.0, op.epsilon, False
    )
