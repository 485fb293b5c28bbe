"""Forms that write into a tensor, call a module, or take lists of tensors."""

from typing import Any

import torch
from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported

HALVES = ("bfloat16", "float16")
STRIDED = 2
"""From one element of a strided buffer to the next."""


def in_place(function: Plan) -> Plan:
    """`function` writes into its first tensor: a copy of the input, which is what is judged."""

    def call(x: Tensor, *others: Tensor) -> Tensor:
        if torch.broadcast_shapes(x.shape, *(t.shape for t in others)) != x.shape:
            raise Unsupported("in place, the others must broadcast to the first")
        y = x.clone()
        function(y, *others)
        return y

    return call


def into(function: Plan, shape: Any, x: Tensor, strided: bool) -> Tensor:
    """What `function(out)` leaves in a buffer of NaN, or of ones; a strided one has gaps."""
    number = torch.nan if x.is_floating_point() else 1
    buffer = x.new_full((*shape, STRIDED) if strided else tuple(shape), number)
    out = buffer[..., 0] if strided else buffer
    function(out)
    return out


def into_broadcast(function: Plan, *tensors: Tensor, strided: bool) -> Tensor:
    """`function` writes into `out`, which has the shape that the inputs broadcast to."""
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    return into(lambda out: function(*tensors, out=out), shape, tensors[0], strided)


def with_buffers(forms: Forms, operator: str, name: str, function: Plan, **row: Any) -> None:
    """Forms of a row's call that write into a buffer.

    `function(op, *tensors, strided=...)` returns the buffer.
    """
    row = {"gradient": "torch differentiates nothing that writes into a buffer", **row}
    for strided, title in ((False, f"{name}(out=)"), (True, f"{name}(out=strided)")):

        def call(op: Any, *tensors: Tensor, strided: bool = strided) -> Tensor:
            written: Tensor = function(op, *tensors, strided=strided)
            return written

        forms.add(operator, title, **row)(call)


def autocast(plan: Plan, op: Any, *inputs: Tensor | None) -> Plan:
    """A plan on the same numbers in float32; its result has the dtype that autocast names.

    Functions take float32 under it and compute in that dtype; so does their gradient:
    https://docs.pytorch.org/docs/2.13/amp.html
    """
    first = next(x for x in inputs if x is not None)
    device, dtype = first.device.type, first.dtype
    function = plan(op, *(None if x is None else x.float() for x in inputs))

    def call(*inputs: Tensor | None) -> Any:
        with torch.autocast(device, dtype):
            return function(*(None if x is None else x.float() for x in inputs))

    return call


def each(function: Plan) -> Plan:
    """`function` takes lists of tensors, as optimizers do."""
    return lambda *tensors: function(*([t, t] for t in tensors))[0]


def run(module: nn.Module, *inputs: Tensor, **parameters: Tensor | None) -> Tensor:
    """What a module computes with these parameters; `None` for one that it has not."""
    present = {name: tensor for name, tensor in parameters.items() if tensor is not None}
    result: Tensor = torch.func.functional_call(module, present, inputs)
    return result


LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def in_channels_last(x: Tensor) -> Tensor:
    """The same values, those of a position side by side."""
    if x.ndim not in LAST:
        raise Unsupported("channels_last has 4 or 5 axes")
    return x.contiguous(memory_format=LAST[x.ndim])
