"""`python exported.py EXPORTER FOLDER`: modules of torch, exported as others do.

FOLDER gets a folder of each, with the model, and as a test data set the input and what torch
itself computes of it.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn


def images() -> tuple[nn.Module, Tensor]:
    """A convolutional classifier; its batch normalisation has seen data."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, groups=4),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 10),
    )
    module(torch.randn(16, 3, 20, 17))
    return module, torch.randn(2, 3, 20, 17)


def words() -> tuple[nn.Module, Tensor]:
    """An encoder of words: embeddings, and a layer of self-attention with its normalisations."""
    layer = nn.TransformerEncoderLayer(24, 4, 48, activation="gelu", batch_first=True)
    module = nn.Sequential(nn.Embedding(50, 24), layer, nn.Linear(24, 7))
    return module, torch.randint(0, 50, (2, 5))


class Bent(nn.Module):
    """Bent activations on normalised images, up to a scalar: its gradients are judged too."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 6, 3),
            nn.InstanceNorm2d(6, affine=True),
            nn.PReLU(6),
            nn.Conv2d(6, 5, 3),
            nn.ReLU6(),
            nn.Conv2d(5, 4, 2),
            nn.Hardswish(),
            nn.Flatten(),
            nn.Linear(4 * 4 * 3, 7),
            nn.ELU(0.5),
            nn.Linear(7, 5),
            nn.SELU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return (y * y).mean()


def bent() -> tuple[nn.Module, Tensor]:
    """The scalar of a small batch."""
    return Bent(), torch.randn(2, 2, 9, 8)


MODULES: Mapping[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "images": images,
    "words": words,
    "bent": bent,
}
OUTPUTS = {"bent": "loss"}
"""What a module's output is called, where it is no `y`."""


def export(name: str, exporter: str, folder: Path) -> None:
    torch.manual_seed(3)
    module, x = MODULES[name]()
    module.eval()
    data = folder / name / "test_data_set_0"
    data.mkdir(parents=True)
    torch.onnx.export(
        module, (x,), str(folder / name / f"{name}.onnx"), input_names=["x"],
        output_names=[OUTPUTS.get(name, "y")], dynamo=exporter == "dynamo",
    )  # fmt: skip
    with torch.no_grad():
        y = module(x)
    for what, tensor in (("input", x), ("output", y)):
        onnx.save_tensor(numpy_helper.from_array(tensor.numpy()), data / f"{what}_0.pb")


if __name__ == "__main__":
    for name in MODULES:
        export(name, sys.argv[1], Path(sys.argv[2]))
