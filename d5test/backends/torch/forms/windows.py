"""Forms of convolutions and poolings: modules, words for pads, windows of one size."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.torch.arguments import by_rank, integers
from d5test.backends.torch.forms.calls import HALVES, autocast, in_channels_last, run
from d5test.backends.windows import Windows

forms = Forms()
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
CONV_TRANSPOSE = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
MAX_POOL = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
AVERAGE_POOL = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
ADAPTIVE_POOL = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
IMAGES = {"rank0": {"min": 4, "max": 5}}
CONV_BY_WORD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


BLOCK = 16
OVERRUN = "oneDNN writes past the end of its workspace (uxlfoundation/oneDNN#6035)"
"""In the weight gradient of a strided 1x1 convolution in channels_last, of fewer channels than a
block has. Calls that come later crash, so that nothing may be asked there."""


def convolution(op: Any, x: Tensor, w: Tensor, b: Tensor | None, padding: Any) -> nn.Module:
    """The module of a convolution, without its parameters."""
    at, groups = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:])), op.group
    module: nn.Module = by_rank(CONV, x)(
        w.shape[1] * groups, w.shape[0], at.kernel, at.strides, padding, at.dilations, groups,
        bias=b is not None, dtype=x.dtype, device="meta",
    )  # fmt: skip
    return module


def same_pads(op: Any, x: Tensor, w: Tensor) -> tuple[int, ...]:
    """The pads of each axis, where both sides have the same."""
    at = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:]))
    if at.begin != at.end:
        raise Unsupported("torch's convolutions pad both sides alike")
    return tuple(at.begin)


def conv(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    module = convolution(op, x, w, b, same_pads(op, x, w))
    return lambda x, w, b=None: run(module, x, weight=w, bias=b)


forms.add("Conv", "torch.nn.Conv1d, 2d, 3d", arithmetic="S")(planned(conv))


def conv_last(layout: Plan, op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    """A module in channels_last; `layout` is that of the input."""
    module = convolution(op, x, w, b, same_pads(op, x, w))
    strided = max(w.shape[2:]) == 1 and max(module.stride) > 1
    narrow = x.dtype in (torch.float32, torch.bfloat16) and x.device.type == "cpu"
    if strided and narrow and x.shape[1] < BLOCK:
        raise Unsupported(f"known failure: {OVERRUN}")
    return lambda x, w, b=None: run(module, layout(x), weight=in_channels_last(w), bias=b)


for _title, _layout in (
    ("torch.nn.Conv2d, 3d in channels_last", in_channels_last),
    ("torch.nn.Conv2d, 3d, its weight in channels_last", Tensor.contiguous),
):
    forms.add("Conv", _title, arithmetic="S", where=IMAGES)(planned(partial(conv_last, _layout)))


@forms.add(
    "Conv", 'torch.nn.functional.conv1d, 2d, 3d(padding="valid")', arithmetic="S",
    attributes={"auto_pad": ("VALID",), "pads": (None,)},
)  # fmt: skip
@planned
def conv_valid(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    at = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:]))
    convolve = by_rank(CONV_BY_WORD, x)
    return lambda x, w, b=None: convolve(x, w, b, at.strides, "valid", at.dilations, op.group)


@forms.add(
    "Conv", 'torch.nn.functional.conv1d, 2d, 3d(padding="same")', arithmetic="S",
    attributes={"auto_pad": ("SAME_UPPER",), "pads": (None,), "strides": (None,)},
)  # fmt: skip
@planned
def conv_same(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    at = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:]))
    convolve = by_rank(CONV_BY_WORD, x)
    return lambda x, w, b=None: convolve(x, w, b, 1, "same", at.dilations, op.group)


@forms.add("Conv", "torch.convolution", arithmetic="S")
@planned
def convolve(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    at, pads = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:])), same_pads(op, x, w)
    steps = at.strides, pads, at.dilations, False, (0,) * len(pads), op.group
    return lambda x, w, b=None: torch.convolution(x, w, b, *steps)


def transposed(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    at, groups = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:])), op.group
    begin, end = zip(*at.cut(op), strict=True)
    more = tuple(op.output_padding or (0,) * len(begin))
    axes = zip(more, at.strides, at.dilations, strict=True)
    if begin != end or min(begin) < 0 or not all(m < max(s, d) for m, s, d in axes):
        raise Unsupported("torch cuts both sides alike, and pads less than a step")
    module = by_rank(CONV_TRANSPOSE, x)(
        w.shape[0], w.shape[1] * groups, at.kernel, at.strides, begin, more, groups,
        b is not None, at.dilations, dtype=x.dtype, device="meta",
    )  # fmt: skip
    return lambda x, w, b=None: run(module, x, weight=w, bias=b)


forms.add("ConvTranspose", "torch.nn.ConvTranspose1d, 2d, 3d", arithmetic="S")(planned(transposed))


def pool(modules: dict[int, Any], more: Any, op: Any, x: Tensor) -> Plan:
    """The module of a pooling; `more` are its other arguments, of an operator and its windows."""
    at = Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape))
    if not at.plain:
        raise Unsupported("torch's pools pad both sides alike, by at most half a kernel")
    module: Plan = by_rank(modules, x)(at.kernel, at.strides, at.begin, **more(op, at))
    return module


def of_maximum(op: Any, at: Windows) -> dict[str, Any]:
    return {"dilation": at.dilations, "ceil_mode": at.ceil}


def of_average(op: Any, at: Windows) -> dict[str, Any]:
    if max(at.dilations) > 1 or any(n < k for n, k in zip(at.size, at.kernel, strict=True)):
        raise Unsupported("torch averages no dilated windows, nor larger ones than its input")
    return {"count_include_pad": bool(op.count_include_pad), "ceil_mode": at.ceil}


forms.add("MaxPool", "torch.nn.MaxPool1d, 2d, 3d", outputs=1)(
    planned(partial(pool, MAX_POOL, of_maximum))
)
forms.add(
    "MaxPool", "torch.nn.MaxPool1d, 2d, 3d(return_indices=True)", contract="indices of the plane",
    attributes={"storage_order": (0,)},
    source="https://docs.pytorch.org/docs/2.13/generated/torch.nn.MaxUnpool2d.html",
)(
    planned(partial(pool, MAX_POOL, lambda op, at: of_maximum(op, at) | {"return_indices": True}))
)  # fmt: skip
forms.add("AveragePool", "torch.nn.AvgPool1d, 2d, 3d")(
    planned(partial(pool, AVERAGE_POOL, of_average))
)


def laid_out(plan: Plan, *arguments: Any) -> Plan:
    """What `plan` returns, called on a tensor in channels_last."""
    function = plan(*arguments)
    return lambda x: function(in_channels_last(x))


for _operator, _title, _plan, _row in (
    ("MaxPool", "MaxPool2d, 3d", partial(pool, MAX_POOL, of_maximum), {"outputs": 1}),
    ("AveragePool", "AvgPool2d, 3d", partial(pool, AVERAGE_POOL, of_average), {}),
    ("GlobalAveragePool", "AdaptiveAvgPool2d, 3d", lambda op, x: by_rank(ADAPTIVE_POOL, x)(1), {}),
):
    forms.add(_operator, f"torch.nn.{_title} in channels_last", where=IMAGES, **_row)(
        planned(partial(laid_out, _plan))
    )
ADAPTIVE_MAX_POOL = {1: nn.AdaptiveMaxPool1d, 2: nn.AdaptiveMaxPool2d, 3: nn.AdaptiveMaxPool3d}
INDEXED = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGES = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
MAX_FUNCTIONS = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}


@forms.add("MaxPool", "torch.max_pool1d, 2d, 3d", outputs=1)
@planned
def functional_max(op: Any, x: Tensor) -> Plan:
    at, function = (
        Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape)),
        by_rank(MAX_FUNCTIONS, x),
    )
    if not at.plain:
        raise Unsupported("torch's pools pad both sides alike, by at most half a kernel")
    steps = at.kernel, at.strides, at.begin, at.dilations, at.ceil
    return lambda x: function(x, *steps)


@forms.add("MaxPool", "torch.nn.functional.max_pool1d, 2d, 3d(return_indices=True)", outputs=1)
@planned
def with_indices(op: Any, x: Tensor) -> Plan:
    at, function = Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape)), by_rank(INDEXED, x)
    if not at.plain:
        raise Unsupported("torch's pools pad both sides alike, by at most half a kernel")
    steps = at.kernel, at.strides, at.begin, at.dilations, at.ceil
    return lambda x: function(x, *steps, return_indices=True)[0]


forms.add("GlobalAveragePool", "torch.nn.functional.avg_pool1d, 2d, 3d over all positions")(
    planned(lambda op, x: partial(by_rank(AVERAGES, x), kernel_size=tuple(x.shape[2:])))
)
forms.add("GlobalAveragePool", "torch.nn.AdaptiveAvgPool1d, 2d, 3d")(
    planned(lambda op, x: by_rank(ADAPTIVE_POOL, x)(1))
)
forms.add("GlobalMaxPool", "torch.nn.AdaptiveMaxPool1d, 2d, 3d")(
    planned(lambda op, x: by_rank(ADAPTIVE_MAX_POOL, x)(1))
)
forms.same(
    "GlobalAveragePool",
    {"torch.mean over the positions": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True)},
)


for _operator, _made in (("Conv", conv), ("ConvTranspose", transposed)):
    forms.add(_operator, "torch.autocast", arithmetic="S", dtypes=HALVES)(
        planned(partial(autocast, _made))
    )


@forms.add(
    "Col2Im", "torch.nn.Fold", arithmetic="S", values=(1, 2), where={"size1": 2},
    attributes={"pads": (None,)},
)  # fmt: skip
@planned
def fold(op: Any, x: Tensor, image_shape: Tensor, block_shape: Tensor) -> Plan:
    strides, dilations = op.strides or (1, 1), op.dilations or (1, 1)
    module = nn.Fold(integers(image_shape), integers(block_shape), dilations, 0, strides)
    return lambda x, *_: module(x)
