"""Sizes of the gradients of networks, and the buckets in which they are summed."""

from collections.abc import Sequence
from math import prod

from d5test.names import unknown

ITEMSIZE = 4
"""Bytes of an item: gradients are float32."""
BUCKET = 25 << 20
"""Bytes of a bucket, as DistributedDataParallel has it: Li et al., PVLDB 13 (2020), 3.2."""


def resnet50() -> list[tuple[int, ...]]:
    """Shapes of the parameters, in the order of their layers. He et al. 2016, table 1.

    With a weight and a bias for each batch normalisation, and none for a convolution: as
    torchvision has it, 25,557,032 parameters in 161 tensors.
    """
    shapes: list[tuple[int, ...]] = []

    def convolution(into: int, out: int, side: int) -> None:
        shapes.extend([(out, into, side, side), (out,), (out,)])

    convolution(3, 64, 7)
    into = 64
    for middle, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(into, middle, 1)
            convolution(middle, middle, 3)
            convolution(middle, 4 * middle, 1)
            if block == 0:
                convolution(into, 4 * middle, 1)
            into = 4 * middle
    return [*shapes, (1000, into), (1000,)]


def model(name: str) -> Sequence[int]:
    """Items of each gradient of a network, in the order of the layers. Raises `BadName`."""
    from d5test.networks.zoo import NETWORKS

    if name == "resnet50":
        return [prod(shape) for shape in resnet50()]
    if name not in NETWORKS:
        raise unknown("model", name, ("resnet50", *NETWORKS))
    return [x.size for x in NETWORKS[name].network().fetch().values()]


def buckets(items: Sequence[int], nbytes: int = BUCKET) -> list[int]:
    """Items of each bucket: from the last layer on, each is closed once it has so many bytes."""
    closed, filling = [], 0
    for size in reversed(items):
        filling += size
        if filling * ITEMSIZE >= nbytes:
            closed.append(filling)
            filling = 0
    return closed + ([filling] if filling else [])
