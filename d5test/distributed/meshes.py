"""The caches of DTensor, which outlive the process groups of a training.

To them equal meshes are one, so that a tensor may come with the mesh of an earlier training, whose
process groups are gone, and a collective does not find them by their names (torch 2.13). And a
mesh keeps its groups, and they their threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from typing import Any

PACKAGE = "torch.distributed.tensor"
CLEARING = (
    ("debug", "_clear_sharding_prop_cache"),
    ("_redistribute", "clear_redistribute_planner_cache"),
    ("_redistribute", "_gen_transform_infos.cache_clear"),
    ("_collective_utils", "MeshTopoInfo.build_from_mesh.cache_clear"),
    ("_sharding_prop", "ShardingPropagator._propagate_tensor_meta_cached.cache_clear"),
)
"""Modules of DTensor, and what clears a cache of each. Other versions may lack one of them."""


def forget_meshes() -> None:
    """Clear the caches, if DTensor is in use: the process groups of its meshes have ended."""
    if PACKAGE in sys.modules:
        for clear in _clearing():
            clear()


def _clearing() -> Iterator[Callable[[], Any]]:
    for module, name in CLEARING:
        with suppress(ImportError, AttributeError):
            yield attrgetter(name)(import_module(f"{PACKAGE}.{module}"))
