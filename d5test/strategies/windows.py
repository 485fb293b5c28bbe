"""What convolutions and poolings draw alike: attributes along axes, and the sizes that fit."""

from __future__ import annotations

from d5test.strategies.draw import Draw, Shape


def auto_pads() -> tuple[str, ...]:
    """The paddings of ONNX, explicit ones first and most often."""
    return ("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def vector(d: Draw, n: int, low: int, high: int) -> Shape:
    """An attribute along n axes."""
    return tuple(d.integer(low, high) for _ in range(n))


def rank_of(
    d: Draw,
    kernel: Shape | None,
    strides: Shape | None,
    dilations: Shape | None,
    pads: Shape | None,
    *others: Shape | None,
) -> int:
    """How many spatial axes the attributes speak of; any number if they are all left out."""
    for attribute in (kernel, strides, dilations, *others):
        if attribute:
            return len(attribute)
    return len(pads) // 2 if pads else d.integer(1, 3)


def spatial(
    d: Draw, kernel: Shape, dilations: Shape | None, pads: Shape | None, auto_pad: str
) -> Shape:
    """Sizes of at least one window, in which a dilated window finds an element."""
    rank = len(kernel)
    dilations = dilations or (1,) * rank
    pads = pads if pads and auto_pad == "NOTSET" else (0,) * 2 * rank
    sizes = []
    for i, (k, dilation) in enumerate(zip(kernel, dilations, strict=True)):
        extent = 1 if auto_pad.startswith("SAME") else (k - 1) * dilation + 1
        least = max(dilation, extent - pads[i] - pads[i + rank])
        sizes.append(d.side(least, max(least + 1, 5 if rank < 3 else 3)))
    return tuple(sizes)
