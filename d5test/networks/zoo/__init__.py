"""Networks made by code, with seeded parameters, small enough to be judged.

`NETWORKS` has them by name. Each takes its inputs and labels and ends in the output `loss`.
"""

from collections.abc import Mapping

from d5test.networks.zoo.built import Built
from d5test.networks.zoo.gpt2 import gpt2
from d5test.networks.zoo.resnet import resnet18, resnet44
from d5test.networks.zoo.small import lenet5, mlp

__all__ = ["NETWORKS", "Built", "gpt2", "lenet5", "mlp", "resnet18", "resnet44"]

_ROWS = (
    Built("mlp", mlp, {"x": (7, 3, 8, 8), "labels": (7,)}, {"labels": 10}),
    Built("lenet5", lenet5, {"x": (5, 1, 32, 32), "labels": (5,)}, {"labels": 10}),
    Built("resnet18", resnet18, {"x": (3, 3, 33, 33), "labels": (3,)}, {"labels": 10}),
    Built("resnet44", resnet44, {"x": (5, 3, 8, 8), "labels": (5,)}, {"labels": 10}),
    Built("gpt2", gpt2, {"tokens": (3, 11), "labels": (3, 11)}, {"tokens": 101, "labels": 101}),
)

NETWORKS: Mapping[str, Built] = {row.name: row for row in _ROWS}
"""Name -> how it is made and fed."""
