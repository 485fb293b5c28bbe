"""Forms of what moves values."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d5test.backends.base import FLOATS, Forms, Plan, Unsupported, padded, planned
from d5test.backends.torch.arguments import integers, outwards
from d5test.backends.torch.forms.calls import in_place, into, run, with_buffers
from d5test.backends.torch.movement import (
    around_pixels,
    order,
    pads_of,
    shape_of,
    shuffled,
    triangle,
)
from d5test.dtypes import WHOLE

forms = Forms()
NUMBER = 7.0
"""What `F.pad` writes around."""


def with_number(
    crops: bool,
    op: Any,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Plan:
    """`F.pad` with a number; whether it also crops, takes another way through torch."""
    sides = outwards(*pads_of(x, pads, axes))
    if crops != (min(sides, default=0) < 0):
        raise Unsupported(f"this form {'crops' if crops else 'does not crop'}")
    return lambda x, *_: F.pad(x, sides, value=NUMBER)


for _crops, _title in ((False, f"value={NUMBER}"), (True, f"negative, value={NUMBER}")):
    forms.add(
        "Pad",
        f"torch.nn.functional.pad({_title})",
        values=(1, 3),
        constants={2: NUMBER},
        attributes={"mode": ("constant",)},
        where={"present2": True},
    )(planned(partial(with_number, _crops)))


def framed(
    name: str, op: Any, x: Tensor, pads: Tensor, value: Any = None, axes: Tensor | None = None
) -> Plan:
    sides = around_pixels(x, *pads_of(x, pads, axes))
    if sides is None:
        raise Unsupported("torch's modules pad pixels, once around at most")
    module: Plan = getattr(nn, f"{name}{x.ndim - 2}d")(tuple(sides))
    return lambda x, *_: module(x)


for _mode, _name in (("reflect", "Reflection"), ("edge", "Replication"), ("wrap", "Circular")):
    forms.add(
        "Pad",
        f"torch.nn.{_name}Pad1d, 2d, 3d",
        arithmetic="S",
        values=(1, 3),
        attributes={"mode": (_mode,)},
        where={"rank0": {"min": 3, "max": 5}},
    )(planned(partial(framed, f"{_name}Pad")))


def reshaped(function: Plan, op: Any, x: Tensor, shape: Tensor) -> Plan:
    sides = shape_of(op, x, shape)
    return lambda x, shape: function(x, sides)


for _name in ("reshape", "view"):
    _method = getattr(Tensor, _name)
    forms.add("Reshape", f"Tensor.{_name}", values=(1,))(planned(partial(reshaped, _method)))


def permuted(function: Plan, op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    return lambda x: function(x, axes)


forms.add("Transpose", "Tensor.permute")(planned(partial(permuted, Tensor.permute)))


def exchanged(function: Plan, op: Any, x: Tensor) -> Plan:
    """`function` exchanges two axes."""
    axes = order(op, x)
    moved = [i for i, axis in enumerate(axes) if axis != i]
    if len(moved) != 2:
        raise Unsupported("it exchanges two axes")
    return lambda x: function(x, *moved)


for _title, _function in (
    ("torch.transpose", torch.transpose),
    ("torch.swapaxes", torch.swapaxes),
    ("Tensor.swapaxes", Tensor.swapaxes),
    ("Tensor.swapaxes_", lambda x, *axes: x.clone().swapaxes_(*axes)),
    ("Tensor.transpose", Tensor.transpose),
    ("Tensor.transpose_", lambda x, *axes: x.clone().transpose_(*axes)),
):
    forms.add("Transpose", _title)(planned(partial(exchanged, _function)))


def moved(function: Plan, op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    return lambda x: function(x, axes, tuple(range(x.ndim)))


for _title, _function in (("torch.movedim", torch.movedim), ("Tensor.movedim", Tensor.movedim)):
    forms.add("Transpose", _title)(planned(partial(moved, _function)))


def matrix(function: Plan, op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    if x.ndim < 2 or axes != (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2):
        raise Unsupported("it exchanges the last two axes")
    return function


for _title, _function, _rank in (
    ("Tensor.mT", lambda x: x.mT, {"min": 2}),
    ("torch.t", torch.t, 2),
    ("Tensor.t", Tensor.t, 2),
    ("Tensor.t_", lambda x: x.clone().t_(), 2),
):
    forms.add("Transpose", _title, where={"rank0": _rank})(planned(partial(matrix, _function)))


forms.add("Concat", "torch.concatenate")(lambda op, *xs: torch.concatenate(xs, op.axis))
forms.add("Concat", "torch.concat")(lambda op, *xs: torch.concat(xs, op.axis))


@forms.add(
    "Concat",
    "torch.cat of two dtypes",
    dtypes=FLOATS[1:],
    where={"inputs": {"min": 2}},
    promotes=WHOLE,
)
def promoted(op: Any, first: Tensor, *others: Tensor) -> Tensor:
    """All but the first are in float64, as the result is, too."""
    return torch.cat((first, *(x.double() for x in others)), op.axis).to(first.dtype)


@forms.add("Concat", "torch.cat(out=)", gradient="torch differentiates nothing that writes so")
@planned
def concat(op: Any, *tensors: Tensor) -> Plan:
    shape = list(tensors[0].shape)
    shape[op.axis] = sum(x.shape[op.axis] for x in tensors)
    return lambda *xs: torch.cat(xs, op.axis, out=xs[0].new_full(shape, torch.nan))


@forms.add("Split", "Tensor.split", values=(1,), where={"inputs": 2})
@planned
def sized(op: Any, x: Tensor, sizes: Tensor) -> Plan:
    sides = integers(sizes)
    return lambda x, sizes: x.split(sides, op.axis)


def split(cut: Plan, chunk: Plan, op: Any, x: Tensor, sizes: Tensor | None = None) -> Plan:
    """By places, or by a number of parts, which `chunk` makes as large as ONNX does."""
    if sizes is not None:
        places = torch.tensor(integers(sizes)).cumsum(0)[:-1].tolist()
        return lambda x, sizes: cut(x, places, op.axis)
    if (
        x.shape[op.axis] < op.num_outputs
        or -(-x.shape[op.axis] // op.num_outputs) * (op.num_outputs - 1) >= x.shape[op.axis]
    ):
        raise Unsupported("torch.chunk makes fewer parts")
    return lambda x, sizes=None: chunk(x, op.num_outputs, op.axis)


for _title, _cut, _chunk in (
    ("torch.chunk, tensor_split", torch.tensor_split, torch.chunk),
    ("Tensor.chunk, tensor_split", Tensor.tensor_split, Tensor.chunk),
):
    forms.add("Split", _title, values=(1,))(planned(partial(split, _cut, _chunk)))


def selected(function: Plan, op: Any, x: Tensor, indices: Tensor) -> Plan:
    """Its indices count from the front alone."""
    side = x.shape[op.axis]
    return lambda x, indices: function(x, op.axis, indices.long() % side)


def along(indices: Tensor, x: Tensor, axis: int) -> Tensor:
    """The indices along an axis of x, which the others broadcast to."""
    return indices.view([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])


def gathered(function: Plan, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """By a function whose indices have the shape of its result."""
    sides = list(x.shape)
    sides[axis] = len(indices)
    result: Tensor = function(x, axis, along(indices, x, axis).expand(sides))
    return result


for _title, _function in (
    ("torch.index_select", torch.index_select),
    ("Tensor.index_select", Tensor.index_select),
    ("torch.gather", partial(gathered, torch.gather)),
    ("Tensor.gather", partial(gathered, Tensor.gather)),
    ("torch.take_along_dim", lambda x, axis, i: torch.take_along_dim(x, along(i, x, axis), axis)),
    ("Tensor.take_along_dim", lambda x, axis, i: x.take_along_dim(along(i, x, axis), axis)),
):  # fmt: skip
    forms.add("Gather", _title, arithmetic="S", where={"rank1": 1})(
        planned(partial(selected, _function))
    )


def picked(function: Plan, op: Any, x: Tensor, indices: Tensor, strided: bool) -> Tensor:
    """Written into a buffer by `function(x, axis, indices, out=)`."""
    sides, i = list(x.shape), indices.long() % x.shape[op.axis]
    sides[op.axis] = len(i)
    return into(lambda out: function(x, op.axis, i, out=out), sides, x, strided)


for _title, _function in (
    ("torch.index_select", torch.index_select),
    ("torch.gather", lambda x, axis, i, out: gathered(partial(torch.gather, out=out), x, axis, i)),
):
    with_buffers(forms, "Gather", _title, partial(picked, _function), where={"rank1": 1})


def embedding(function: Plan, op: Any, x: Tensor, indices: Tensor) -> Plan:
    side = x.shape[0]
    return lambda x, indices: function(x, indices.long() % side)


def by_module(x: Tensor, indices: Tensor) -> Tensor:
    return run(nn.Embedding(*x.shape, dtype=x.dtype, device="meta"), indices, weight=x)


for _title, _function in (
    ("torch.nn.functional.embedding", lambda x, indices: F.embedding(indices, x)),
    ("torch.embedding", torch.embedding),
    ("torch.nn.Embedding", by_module),
):
    forms.add("Gather", _title, arithmetic="S", attributes={"axis": (0,)}, where={"rank0": 2})(
        planned(partial(embedding, _function))
    )


def expanded(function: Plan, op: Any, x: Tensor, shape: Tensor) -> Plan:
    sides = torch.broadcast_shapes(x.shape, integers(shape))
    return lambda x, shape: function(x, sides)


def tiled(function: Plan, op: Any, x: Tensor, repeats: Tensor) -> Plan:
    times = integers(repeats)
    return lambda x, repeats: function(x, times)


for _name in ("expand", "broadcast_to"):
    forms.add("Expand", f"Tensor.{_name}", values=(1,))(
        planned(partial(expanded, getattr(Tensor, _name)))
    )
for _name in ("repeat", "tile"):
    forms.add("Tile", f"Tensor.{_name}", values=(1,))(
        planned(partial(tiled, getattr(Tensor, _name)))
    )


for _title, _function in (
    ("torch.flatten", lambda x: torch.flatten(x, 1)),
    ("Tensor.flatten", lambda x: x.flatten(1)),
    ("torch.nn.Flatten", nn.Flatten()),
):
    forms.same(
        "Flatten", {_title: _function}, attributes={"axis": (1,)}, where={"rank0": {"min": 2}}
    )


def at_one(function: Plan, op: Any, x: Tensor, axes: Tensor | None = None) -> Plan:
    """`function` takes the place of one axis."""
    chosen = () if axes is None else integers(axes)
    if len(chosen) != 1:
        raise Unsupported("it takes one axis")
    return lambda x, axes=None: function(x, chosen[0])


for _operator, _function, _changed in (
    ("Squeeze", Tensor.squeeze, lambda x, axis: x.clone().squeeze_(axis)),
    ("Unsqueeze", Tensor.unsqueeze, lambda x, axis: x.clone().unsqueeze_(axis)),
):
    for _title, _call in ((_function.__name__, _function), (f"{_function.__name__}_", _changed)):
        forms.add(_operator, f"Tensor.{_title}", values=(1,), where={"size1": 1})(
            planned(partial(at_one, _call))
        )


def narrow(function: Plan, op: Any, x: Tensor, *arguments: Tensor | None) -> Plan:
    """One part of one axis, without steps."""
    starts, ends, axes, steps = padded(arguments, 4)
    ((start,), (end,), (axis,)) = integers(starts), integers(ends), integers(axes)
    first, last, _ = slice(start, end).indices(x.shape[axis])
    if last < first or (steps is not None and integers(steps) != (1,)):
        raise Unsupported("torch.narrow has no steps")
    return lambda x, *_: function(x, axis, first, last - first)


for _title, _function in (("torch.narrow", torch.narrow), ("Tensor.narrow", Tensor.narrow)):
    forms.add("Slice", _title, values=(1, 2, 3, 4), where={"size1": 1, "present3": True})(
        planned(partial(narrow, _function))
    )


def inference(function: Plan, op: Any, x: Tensor, ratio: Tensor | None = None) -> Plan:
    """In training it draws its own mask."""
    return lambda x, ratio=None: function(x)


INFERENCE = {"inputs": {"max": 2}}
for _title, _function, _where in (
    ("torch.dropout(train=False)", lambda x: torch.dropout(x, 0.5, False), {}),
    ("torch.dropout_(train=False)", in_place(lambda x: torch.dropout_(x, 0.5, False)), {}),
    ("torch.nn.Dropout", nn.Dropout().eval(), {}),
    ("torch.nn.Dropout1d", nn.Dropout1d().eval(), {"rank0": [2, 3]}),
    ("torch.nn.Dropout2d", nn.Dropout2d().eval(), {"rank0": [3, 4]}),
):
    forms.add("Dropout", _title, outputs=1, where={**INFERENCE, **_where})(
        planned(partial(inference, _function))
    )


for _operator, _title, _function in (
    ("DepthToSpace", "torch.pixel_shuffle", torch.pixel_shuffle),
    ("DepthToSpace", "torch.nn.PixelShuffle", lambda x, b: nn.PixelShuffle(b)(x)),
    ("SpaceToDepth", "torch.pixel_unshuffle", torch.pixel_unshuffle),
    ("SpaceToDepth", "torch.nn.PixelUnshuffle", lambda x, b: nn.PixelUnshuffle(b)(x)),
):
    forms.add(_operator, _title, attributes={"mode": ("CRD",)})(
        planned(partial(shuffled, _function))
    )


for _title, _functions in (
    ("Tensor.tril, triu", (Tensor.tril, Tensor.triu)),
    (
        "Tensor.tril_, triu_",
        (lambda x, *k: x.clone().tril_(*k), lambda x, *k: x.clone().triu_(*k)),
    ),
):
    forms.add("Trilu", _title, values=(1,))(planned(partial(triangle, _functions)))


def written(op: Any, x: Tensor, k: Tensor | None = None, *, strided: bool) -> Tensor:
    function = torch.triu if op.upper else torch.tril
    diagonal = 0 if k is None else integers(k)[0]
    return into(lambda out: function(x, diagonal, out=out), x.shape, x, strided)


with_buffers(forms, "Trilu", "torch.tril, triu", written, values=(1,))
