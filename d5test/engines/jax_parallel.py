"""Engines of jax, whose ranks are processes of `jax.distributed`: sharded arrays, and `shard_map`.

Requirements: `jax.distributed` is begun once a process, before jax computes anything, and gloo
carries its collectives. Arrays are as jax holds them; what a rank holds is asked of its shards.
64-bit types are on while an engine is at work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, prod
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from torch import nn

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.distributed.gloo import COLLECTIVE
from d5test.distributed.meeting import addresses
from d5test.engines.engine import (
    TINY,
    Engine,
    Held,
    Minibatch,
    Plan,
    Rule,
    World,
    gathered,
)
from d5test.engines.functional import (
    EPSILON,
    Parameters,
    Rows,
    Update,
    as_tensors,
    rows_of,
    weighted_loss,
)
from d5test.engines.models import check_split

TIMEOUT = 60
"""Seconds until jax gives up on a rank that does not come, at the beginning and at the end."""
FLAG = "xla_cpu_collective_timeout_seconds"
"""Of XLA: how long it waits in a collective, see `COLLECTIVE`."""
Arrays = Mapping[str, Any]


class JaxFunctions:
    """See `d5test.engines.functional.Functions`."""

    softmax, log_softmax = staticmethod(jax.nn.softmax), staticmethod(jax.nn.log_softmax)
    einsum, reshape = staticmethod(jnp.einsum), staticmethod(jnp.reshape)
    total = staticmethod(jnp.sum)
    gelu = staticmethod(partial(jax.nn.gelu, approximate=False))
    normalised = staticmethod(partial(jax.nn.standardize, epsilon=EPSILON))

    @staticmethod
    def linear(x: Any, w: Any) -> Any:
        """See `Functions`."""
        return x @ w.T

    @staticmethod
    def convolved(x: Any, w: Any, stride: int) -> Any:
        """See `Functions`."""
        pads = 2 * [(w.shape[-1] // 2, w.shape[-1] // 2)]
        return jax.lax.conv_general_dilated(x, w, (stride, stride), pads)

    @staticmethod
    def means(x: Any) -> Any:
        """See `Functions`."""
        return x.mean((-2, -1))

    @staticmethod
    def without_least(x: Any) -> Any:
        """See `Functions`."""
        return jnp.where(x == x.min(-1, keepdims=True), -jnp.inf, x)

    @staticmethod
    def rows(table: Any, indices: Any) -> Any:
        """See `Functions`."""
        return table[indices]

    @staticmethod
    def picked(x: Any, indices: Any) -> Any:
        """See `Functions`."""
        return jnp.take_along_axis(x, indices[..., None], -1)[..., 0]

    @staticmethod
    def constant(value: Array, like: Any) -> Any:
        """See `Functions`."""
        return jnp.asarray(value, like.dtype)


def connect(world: World) -> None:
    """Begin `jax.distributed` on these ranks, once a process. Raises `Unsupported`."""
    if not jax.distributed.is_initialized():
        flags = os.environ.get("XLA_FLAGS", "")
        if FLAG not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --{FLAG}={COLLECTIVE.seconds}".strip()
        try:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            jax.distributed.initialize(
                addresses(partial(gathered, size=world.size))[0],
                world.size,
                world.rank,
                initialization_timeout=TIMEOUT,
                shutdown_timeout_seconds=TIMEOUT,
            )
        except RuntimeError as error:  # something in this process has computed already
            raise Unsupported(f"jax.distributed does not begin: {error}") from None
    if len(jax.devices()) != world.size:
        raise Unsupported(f"jax has {len(jax.devices())} devices on {world.size} ranks")


class JaxEngine(Engine):
    """What these have in common: a jitted step on sharded arrays."""

    version = f"jax {jax.__version__}"
    seen = False
    lacks = MappingProxyType(
        {
            "batchnorm": "no batch normalisation is written as a function yet",
            "dropout": "no dropout is written as a function yet",
            "branched": "what no sample uses has a gradient of zero, and is stepped",
            "resumed": "no checkpoint of jax is written yet",
        }
    )
    axes: tuple[str, ...] = ("dp", "fsdp", "tp")

    def start(self, world: World) -> None:
        """See `Engine`."""
        jax.config.update("jax_enable_x64", True)
        connect(world)
        self.world = world
        self.sizes = {axis: world.mesh.get(axis, 1) for axis in self.axes}
        devices = np.array(jax.devices()).reshape(*self.sizes.values())
        self.mesh = Mesh(devices, self.axes)
        self.data = PartitionSpec(tuple(axis for axis in ("dp", "fsdp") if axis in self.axes))
        self.shares = world.size // self.sizes.get("tp", 1)

    def close(self) -> None:
        """See `Engine`."""
        jax.config.update("jax_enable_x64", False)

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """Parameters and slots are put where they belong."""
        self.plan, self.update, self.taken, self.rows = plan, Update.of(optimizer), 0, 1
        self.initial = Parameters.of(model)
        self.shardings = {name: self.sharding(spec) for name, spec in self.specs().items()}
        self.p = {name: self.placed(name, value) for name, value in self.initial.values.items()}
        self.slots = {name: self.slots_of(name) for name in self.p}
        self.stepped = jax.jit(
            self.computed,
            out_shardings=(
                self.shardings,
                {name: {slot: x.sharding for slot, x in of.items()}
                 for name, of in self.slots.items()},
                *2 * (self.sharding(PartitionSpec()),),
            ),
        )  # fmt: skip

    def sharding(self, spec: PartitionSpec) -> NamedSharding:
        """On the mesh."""
        return NamedSharding(self.mesh, spec)

    def specs(self) -> Mapping[str, PartitionSpec]:
        """How each parameter is divided: not at all."""
        return {name: PartitionSpec() for name in self.initial.values}

    def placed(self, name: str, value: Array) -> Any:
        """With rows of zeros below: jax has equal shards only."""
        sharding = self.shardings[name]
        dims = sharding.spec
        ways = prod(self.sizes[axis] for axis in np.ravel(dims[0] or [])) if dims else 1
        more = -value.shape[0] % ways
        padded = np.pad(value, [(0, more)] + [(0, 0)] * (value.ndim - 1))
        return self.array(padded, sharding)

    def array(self, value: Array, sharding: NamedSharding) -> Any:
        """Each rank puts what it holds of it."""
        return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)

    def slots_of(self, name: str) -> dict[str, Any]:
        """Zeros, divided as the parameter is."""
        zeros = np.zeros_like(self.initial.values[name])
        return {slot: self.placed(name, zeros) for slot in self.update.slots}

    def unpadded(self, p: Arrays) -> dict[str, Any]:
        """Without the rows that were added."""
        return {name: p[name][: len(value)] for name, value in self.initial.values.items()}

    def loss(self, p: Arrays, part: Rows) -> Any:
        """Of some samples, each by its weight."""
        named = self.initial.under_all_names(self.unpadded(p))
        return weighted_loss(JaxFunctions(), named, part.x, part.y, part.weight)

    def gradient(self, p: Arrays, part: Rows) -> tuple[Any, Any]:
        """The loss of a part of all ranks' samples, and its gradient."""
        loss, gradient = jax.value_and_grad(self.loss)(p, part)
        return loss, gradient

    def computed(
        self, p: Arrays, slots: Mapping[str, Arrays], parts: Sequence[Rows],
        corrections: Sequence[Any],
    ) -> tuple[Any, Any, Any, Any]:  # fmt: skip
        """The parameters and slots after a step, the loss and the norm before it."""
        losses, gradients = zip(*(self.gradient(p, part) for part in parts), strict=True)
        g = {name: sum(each[name] for each in gradients) for name in p}
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in g.values()))
        if self.plan.clip < inf:
            factor = jnp.minimum(self.plan.clip / (norm + TINY), 1.0)
            g = {name: factor * x for name, x in g.items()}
        after = {
            name: self.update(p[name], g[name], slots[name], corrections, jnp.sqrt) for name in p
        }
        return (
            {name: new for name, (new, _) in after.items()},
            {name: kept for name, (_, kept) in after.items()},
            sum(losses),
            norm,
        )

    def parts(self, joined: Minibatch) -> tuple[Rows, ...]:
        """The samples of all ranks, of which each rank has its share.

        Of a smaller minibatch than one before as many as of that: another shape is compiled anew.
        """
        dtype = next(iter(self.p.values())).dtype.name
        sharding = self.sharding(self.data)
        every = rows_of(joined, self.shares, self.plan.accumulate, dtype, self.rows)
        self.rows = len(every[0].weight) // self.shares
        return tuple(
            Rows(*(self.array(x, sharding) for x in (rows.x, rows.y, rows.weight)))
            for rows in every
        )

    def step(self, joined: Minibatch) -> float:
        """See `Engine`."""
        self.taken += 1
        dtype = next(iter(self.p.values())).dtype
        corrections = [np.asarray(c, dtype) for c in self.update.corrections(self.taken)]
        self.p, self.slots, loss, norm = self.stepped(
            self.p, self.slots, self.parts(joined), corrections
        )
        self.norm = float(norm)
        return float(loss)

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """What this rank has of them, and what it has not from others."""
        divided = {name: piece(x) for name, x in self.p.items() if not x.is_fully_replicated}
        others = gathered(divided, self.world.size) if divided else []
        whole = {}
        for name, x in self.p.items():
            whole[name] = np.full(x.shape, np.nan, x.dtype)  # where nobody has a shard
            for index, part in (*(other[name] for other in others if name in other), piece(x)):
                whole[name][index] = part
        return as_tensors(self.unpadded(whole))

    def placements(self) -> Held:
        """Of the shard of this rank, without the rows that were added."""
        slot = self.update.slots[0]
        return Held(
            {name: self.held(name, x) for name, x in self.p.items()},
            {name: self.held(name, of[slot]) for name, of in self.slots.items()},
        )

    def held(self, name: str, x: Any) -> int:
        """How many elements of a parameter are on this rank."""
        (shard,) = x.addressable_shards
        start, stop, _ = shard.index[0].indices(x.shape[0])
        rows = self.initial.values[name].shape[0]
        real = min(stop, rows) - min(start, rows)
        return int(real * prod(shard.data.shape[1:]))


def piece(x: Any) -> tuple[tuple[slice, ...], Array]:
    """Where this rank's shard of an array is, and what it is."""
    (shard,) = x.addressable_shards
    return shard.index, np.asarray(shard.data)


jax.tree_util.register_dataclass(Rows, ["x", "y", "weight"], [])


class Sharding(JaxEngine):
    """`jit` of arrays with a `NamedSharding`: XLA finds out what has to be sent.

    Along `dp` and `fsdp` ranks have other samples; along `fsdp` they have rows of the parameters,
    along `tp` parts of the modules that the plan splits.
    """

    name = "jax-sharding"

    def check(
        self, world: World, model: nn.Sequential, plan: Plan, samples: Sequence[int]
    ) -> None:
        """See `Engine`."""
        check_split(plan.split, model, world.mesh.get("tp", 1))

    def specs(self) -> Mapping[str, PartitionSpec]:
        """Rows along `fsdp`; what the plan splits, along `tp`."""
        return {name: self.spec(name, value) for name, value in self.initial.values.items()}

    def spec(self, name: str, value: Array) -> PartitionSpec:
        """Of one parameter."""
        module, _, kind = name.rpartition(".")
        by = self.plan.split.get(module)
        if by is None or (by == "rows" and kind == "bias"):
            return PartitionSpec("fsdp")
        return PartitionSpec(("tp", "fsdp")) if by == "columns" else PartitionSpec("fsdp", "tp")


class ShardMap(JaxEngine):
    """`shard_map` of the gradient: what is sent is written out, and jax checks what varies.

    The parameters do not vary from rank to rank. So the gradient that jax takes within is summed
    over the ranks already.
    """

    name = "jax-shard-map"
    axes = ("dp",)
    checked = True

    def gradient(self, p: Arrays, part: Rows) -> tuple[Any, Any]:
        """Of each rank's own samples, in one sum."""
        everywhere = PartitionSpec()
        mapped = jax.shard_map(
            self.own,
            mesh=self.mesh,
            in_specs=(everywhere, self.data),
            out_specs=(everywhere, everywhere),
            check_vma=self.checked,
        )
        loss, gradient = mapped(p, part)
        return loss, gradient

    def own(self, p: Arrays, part: Rows) -> tuple[Any, Any]:
        """On a rank."""
        loss, gradient = jax.value_and_grad(self.loss)(p, part)
        return jax.lax.psum(loss, "dp"), self.summed(gradient)

    def summed(self, gradient: Any) -> Any:
        """Over the ranks."""
        return gradient


class ShardMapUnchecked(ShardMap):
    """`shard_map` with `check_vma=False`: each rank has its own gradient."""

    name = "jax-shard-map-unchecked"
    checked = False

    def summed(self, gradient: Any) -> Any:
        """See `ShardMap`."""
        return jax.lax.psum(gradient, "dp")
