"""Keras' `DataParallel` and `ModelParallel` on jax, whose ranks are those of `jax.distributed`.

Requirements: the distribution is in force from the first variable to the last step. A model has
its weights by the names of the sequential one, and is trained by `train_on_batch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from d5test.engines import keras_backend
from d5test.engines.engine import (
    SIDE,
    Engine,
    Held,
    Minibatch,
    Plan,
    Rule,
    World,
)
from d5test.engines.functional import Parameters, as_tensors, outputs, rows_of
from d5test.engines.jax_parallel import JaxFunctions, connect
from d5test.engines.models import check_split

keras_backend.prefer("jax")

import keras  # noqa: E402 (with that backend)

DATA, MODEL = "data", "model"
"""The axes of Keras' mesh."""


class Network(keras.Model):  # type: ignore[misc]
    """A model as a function of its weights, which are trained; outputs are logits."""

    def __init__(self, initial: Parameters) -> None:
        # a policy of its own: the process keeps that of its first floatx
        super().__init__(name="network", dtype=next(iter(initial.values.values())).dtype.name)
        self.initial = initial
        self.p = {name: self.weight(name) for name in initial.values}
        self.built = True

    def weight(self, name: str) -> Any:
        """One of them, which is divided as the distribution in force has it."""
        value = self.initial.values[name]
        made = self.add_weight(value.shape, "zeros", value.dtype.name, name=name)
        made.assign(value)
        return made

    def call(self, x: Any) -> Any:
        """(n, ...) to (n, ..., classes)."""
        p = {name: variable.value for name, variable in self.p.items()}
        return outputs(JaxFunctions(), self.initial.under_all_names(p), x)


class KerasEngine(Engine):
    """What both have in common."""

    version = f"keras {keras.__version__}, jax {jax.__version__}"
    seen = False
    lacks = MappingProxyType(
        {
            "clip": "train_on_batch of Keras does not say the norm of the gradient",
            "batchnorm": "no batch normalisation is written as a function yet",
            "dropout": "no dropout is written as a function yet",
            "branched": "what no sample uses has a gradient of zero, and is stepped",
            "decay": keras_backend.DECAY,
            "resumed": "no checkpoint of Keras is written yet",
        }
    )

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`."""
        keras_backend.demand("jax")

    def start(self, world: World) -> None:
        """See `Engine`."""
        keras_backend.demand("jax")
        jax.config.update("jax_enable_x64", True)
        connect(world)
        self.world, self.floatx = world, keras.config.floatx()
        self.shares, self.ways = world.mesh.get("dp", 1), world.mesh.get("tp", 1)
        self.mesh = keras.distribution.DeviceMesh(
            (self.shares, self.ways), (DATA, MODEL), keras.distribution.list_devices()
        )

    def close(self) -> None:
        """See `Engine`."""
        jax.config.update("jax_enable_x64", False)
        if hasattr(self, "floatx"):
            keras.distribution.set_distribution(None)
            keras.config.set_floatx(self.floatx)

    def distribution(self) -> Any:
        """How variables and samples are divided."""
        raise NotImplementedError

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """The variables are made where they belong."""
        self.plan, self.initial = plan, Parameters.of(model)
        self.dtype = next(iter(self.initial.values.values())).dtype.name
        parts = {"gradient_accumulation_steps": plan.accumulate} if plan.accumulate > 1 else {}
        keras.distribution.set_distribution(self.distribution())
        self.optimizer = keras_backend.Optimizer(optimizer, self.dtype, **parts)
        self.network = Network(self.initial)
        self.network.compile(
            self.optimizer.made,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        )
        self.optimizer.made.build(self.network.trainable_variables)
        everywhere = jax.sharding.NamedSharding(
            self.mesh.backend_mesh, jax.sharding.PartitionSpec()
        )
        self.whole = jax.jit(lambda p: p, out_shardings=everywhere)

    def step(self, joined: Minibatch) -> float:
        """In one batch or in several, of which Keras takes the mean."""
        self.optimizer.prepare()
        parts = rows_of(joined, self.shares, self.plan.accumulate, self.dtype)
        losses = []
        for rows in parts:
            own = rows.share(self.world.rank // self.ways, self.shares)
            self.network.reset_metrics()
            losses.append(
                self.network.train_on_batch(own.x, own.y, self.weights(own.weight * len(parts)))
            )
        return float(sum(losses)) / len(parts)

    def weights(self, weight: Any) -> Any:
        """Of the samples of this rank, so that the loss is the sum over all ranks."""
        return weight

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """What this rank has of them, gathered where it has not all."""
        p = self.whole({name: variable.value for name, variable in self.network.p.items()})
        return as_tensors({name: np.asarray(x.addressable_data(0)) for name, x in p.items()})

    def placements(self) -> Held:
        """Of the shards of this rank."""
        state = dict(zip(self.network.p, self.optimizer.slots, strict=True))
        return Held(*({name: held(v) for name, v in of.items()} for of in (self.network.p, state)))


def held(variable: Any) -> int:
    """How many elements of a variable are on this rank."""
    return sum(prod(shard.data.shape) for shard in variable.value.addressable_shards)


class DataParallel(KerasEngine):
    """Each rank has all variables, and its share of the samples."""

    name = "keras-data-parallel"

    def distribution(self) -> Any:
        """See `KerasEngine`."""
        mesh = keras.distribution.DeviceMesh(
            (self.world.size,), (DATA,), keras.distribution.list_devices()
        )
        return keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False)


class ModelParallel(KerasEngine):
    """Along `tp` ranks have parts of the modules that the plan splits."""

    name = "keras-model-parallel"
    axes = ("dp", "tp")
    along = "tp"

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`."""
        super().check(world, model, plan, samples)
        check_split(plan.split, model, world.mesh.get("tp", 1))

    def distribution(self) -> Any:
        """See `KerasEngine`."""
        layouts = keras.distribution.LayoutMap(self.mesh)
        for name, value in self.initial.values.items():
            layout = self.layout(name, value)
            if layout is not None:
                layouts[self.key(name)] = layout
        return keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name=DATA, auto_shard_dataset=False
        )

    def key(self, name: str) -> str:
        """A pattern of a variable's whole path."""
        return f".*{re.escape(name)}"

    def layout(self, name: str, value: Any) -> tuple[str | None, ...] | None:
        """Of a parameter; `None` if all of it is everywhere."""
        module, _, kind = name.rpartition(".")
        by = self.plan.split.get(module)
        if by is None or (by == "rows" and kind == "bias"):
            return None
        return tuple(MODEL if i == SIDE[by] else None for i in range(value.ndim))
