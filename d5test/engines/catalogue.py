"""Engines by name, and the axes of a mesh of ranks.

Nothing of PyTorch is imported here: names on the command line are resolved before it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from d5test.names import BadName, quoted, unknown

ENGINES: Mapping[str, str] = {
    "torch-ddp": "d5test.engines.data_parallel:Ddp",
    "torch-ddp-static": "d5test.engines.data_parallel:StaticDdp",
    "torch-ddp-unused": "d5test.engines.data_parallel:SearchingDdp",
    "torch-ddp-fp16": "d5test.engines.data_parallel:Float16Ddp",
    "torch-post-local-sgd": "d5test.engines.data_parallel:PostLocalSgd",
    "torch-zero": "d5test.engines.data_parallel:Zero",
    "torch-fsdp2": "d5test.engines.data_parallel:Fsdp2",
    "torch-fsdp2-bf16": "d5test.engines.data_parallel:Bfloat16Fsdp2",
    "torch-tp": "d5test.engines.model_parallel:TensorParallel",
    "torch-tp-sequence": "d5test.engines.sequence_parallel:SequenceParallelism",
    "torch-tp-loss": "d5test.engines.sequence_parallel:LossParallelism",
    "torch-pp": "d5test.engines.model_parallel:Pipeline",
    "torch-pp-1f1b": "d5test.engines.model_parallel:OneForwardOneBackward",
    "torch-pp-interleaved": "d5test.engines.model_parallel:Interleaved",
    "torch-pp-bfs": "d5test.engines.model_parallel:LoopedBreadthFirst",
    "torch-pp-zero-bubble": "d5test.engines.model_parallel:ZeroBubble",
    "torch-pp-zbv": "d5test.engines.model_parallel:ZeroBubbleV",
    "torch-pp-dualpipev": "d5test.engines.model_parallel:DualPipeV",
    "deepspeed": "d5test.engines.deepspeed_parallel:DeepSpeed",
    "deepspeed-zero1": "d5test.engines.deepspeed_parallel:StageOne",
    "deepspeed-zero2": "d5test.engines.deepspeed_parallel:StageTwo",
    "deepspeed-zero3": "d5test.engines.deepspeed_parallel:StageThree",
    "jax-sharding": "d5test.engines.jax_parallel:Sharding",
    "jax-shard-map": "d5test.engines.jax_parallel:ShardMap",
    "jax-shard-map-unchecked": "d5test.engines.jax_parallel:ShardMapUnchecked",
    "tf-multiworker": "d5test.engines.tensorflow_parallel:MultiWorker",
    "keras-data-parallel": "d5test.engines.keras_parallel:DataParallel",
    "keras-model-parallel": "d5test.engines.keras_parallel:ModelParallel",
}
"""Where each of ours is."""
EXTRAS: Mapping[str, Mapping[str, str]] = {
    "torch": {},
    "deepspeed": {"deepspeed": "deepspeed"},
    "jax": {"jax": "jax"},
    "tf": {"tensorflow": "tensorflow"},
    "keras": {"jax": "jax", "keras": "tensorflow"},
}
"""What an engine needs beside PyTorch, by the first word of its name: packages, and the extra of
d5test that brings each."""
ALL = "all"
COMPILED = ("jax", "keras", "tf")
"""The first words of names of ours that compile each case, on each rank."""


def needs(engine: str) -> Mapping[str, str]:
    """The packages that an engine of ours needs, and the extra that brings each.

    >>> needs("keras-data-parallel")
    {'torch': 'torch', 'jax': 'jax', 'keras': 'tensorflow'}
    """
    return {"torch": "torch", **(EXTRAS[engine.partition("-")[0]] if engine in ENGINES else {})}


Division = Literal["", "rows", "plan", "whole"]
"""How ranks along an axis divide tensors: not at all, by rows, as the plan splits modules, or each
rank has some of the tensors; of the optimizer's state it may have pieces of each."""

Samples = Literal["shared", "same", "first"]
"""What ranks along an axis train on: each on its share, all on the same, or all on what the first
of them is given."""


@dataclass(frozen=True)
class Axis:
    """What ranks along an axis of a mesh divide among themselves.

    parameters  how the parameters are divided
    state       how the optimizer's state is
    samples     how the samples are
    """

    parameters: Division = ""
    state: Division = ""
    samples: Samples = "shared"


AXES: Mapping[str, Axis] = {
    "dp": Axis(),
    "zero": Axis(state="whole"),
    "fsdp": Axis("rows", "rows"),
    "tp": Axis("plan", "plan", "same"),
    "pp": Axis("whole", "whole", "first"),
}
"""Data parallelism; with the state divided; with all divided; tensor parallelism; pipelines."""


def words_of(mesh: Mapping[str, int]) -> str:
    """As it stands on the command line.

    >>> words_of({"dp": 2, "tp": 4})
    'dp2,tp4'
    """
    return ",".join(f"{axis}{size}" for axis, size in mesh.items())


def mesh_of(text: str, option: str = "--mesh") -> dict[str, int]:
    """Axes and their sizes, the outermost first. Raises `BadName`, which names the option.

    >>> mesh_of("dp2,tp4")
    {'dp': 2, 'tp': 4}
    """
    mesh: dict[str, int] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([a-z]+)([1-9]\d*)", word)
        if match is None:
            raise BadName(
                f"{option}: expected an axis and its size, such as dp2, got {quoted(word)}"
            )
        axis, size = match[1], int(match[2])
        if axis not in AXES:
            raise unknown("axis of a mesh", axis, AXES)
        if axis in mesh:
            raise BadName(f"{option}: the axis {axis} is named twice")
        mesh[axis] = size
    return mesh
