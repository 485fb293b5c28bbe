"""Models that others made: those in the onnx package, with the outputs that they should have.

The nine `light_*` models are published networks with constant weights; the others are small
graphs that ONNX and PyTorch's exporter were tested with.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.networks.model import BROKEN
from d5test.networks.network import Network

KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""The folders of small models."""


@dataclass(frozen=True)
class ExternalModel:
    """A model file, by name."""

    name: str
    path: Path

    def network(self) -> Network:
        """The network. Raises `Unsupported` if it is not one of tensors and operators."""
        try:
            return Network(self.path)
        except ValueError as error:
            raise Unsupported(f"cannot be read as a network: {error}") from None

    def samples(self, network: Network) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """Inputs, and the outputs that come with the model for them."""
        folders = data_sets(self.path)
        if not folders:
            prefix = str(self.path.with_suffix(""))
            outputs = [Path(f"{prefix}_output_{i}.pb") for i in range(len(network.outputs))]
            yield _ramps(network), dict(zip(network.outputs, map(array, outputs), strict=True))
        for folder in folders:
            yield (
                _numbered(network.inputs, folder, "input"),
                _numbered(network.outputs, folder, "output"),
            )


def data_sets(path: Path) -> list[Path]:
    """The folders beside a model file with inputs and the outputs that it should have for them."""
    return sorted(path.parent.glob("test_data_set_*"))


def external_models() -> Mapping[str, ExternalModel]:
    """The models of the onnx package, by name."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    named = {path.stem: path for path in sorted((data / "light").glob("light_*.onnx"))}
    for kind in KINDS:
        for path in sorted((data / kind).glob("test_*/model.onnx")):
            named[f"{kind}/{path.parent.name.removeprefix('test_')}"] = path
    return {name: ExternalModel(name, path) for name, path in named.items()}


def _ramps(network: Network) -> dict[str, Array]:
    """What ONNX's own runner feeds a light model: numbers from 0 to 1 in a row."""
    inputs = {}
    for name, value in network.inputs.items():
        shape = tuple(side if isinstance(side, int) else 1 for side in value.shape)
        n = int(np.prod(shape))
        inputs[name] = (np.arange(n).reshape(shape) / n).astype(np.float32)
    return inputs


def _numbered(names: Iterable[str], folder: Path, what: str) -> dict[str, Array]:
    return {name: array(folder / f"{what}_{i}.pb") for i, name in enumerate(names)}


def array(path: Path) -> Array:
    """The tensor in a file of ONNX. Raises `ValueError`."""
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except (OSError, ValueError, *BROKEN) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path} is not a tensor of ONNX: {why}") from None
