"""torch.distributed's allreduce and hooks, by its backend gloo, in the processes of mpirun.

MPI only introduces the processes to each other (rank 0 says at which port it listens), and brings
the results together to be judged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from d5test.case import dtype_of
from d5test.distributed.communicator import (
    DTYPES,
    LIBRARY,
    Allreduce,
    Array,
    Facts,
    Processes,
    Reduced,
)
from d5test.distributed.hooked import COLUMNS

RENDEZVOUS = timedelta(seconds=60)
"""How long a rank is waited for that has yet to join: it may share its core with many."""
COLLECTIVE = timedelta(seconds=15)
"""How long gloo waits in a collective for a rank that does not come. Its ranks sleep while they
wait, so that nobody sees which of them sleeps for ever: those that waited leave, and it is left.
"""


@contextmanager
def joined(comm: Any) -> Iterator[None]:
    """A process group with the ranks of the MPI communicator `comm`, as long as it is needed."""
    store = None
    if not comm.rank:
        store = dist.TCPStore("127.0.0.1", 0, comm.size, True, RENDEZVOUS, False)
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, comm.size, False, RENDEZVOUS)
    dist.init_process_group(
        "gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=COLLECTIVE
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class Gloo(Processes):
    """The default process group."""

    def about(self, size: int) -> Facts:
        """PyTorch."""
        return Facts("torch.distributed", torch.__version__, f"{size} ranks", "gloo")

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """Of its own allreduce."""
        return DTYPES if subject == LIBRARY else ()

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """In place, as it does it."""
        mine = contributions[self.comm.rank].copy()
        # torch knows bfloat16, but not NumPy's
        carrier = np.int16 if mine.dtype == dtype_of("bfloat16") else mine.dtype
        tensor = torch.from_numpy(mine.view(carrier)).view(getattr(torch, mine.dtype.name))
        dist.all_reduce(tensor)
        return Reduced(tuple(self.comm.allgather(mine)))

    def reducer(self, algorithm: str) -> Callable[[Array], None]:
        """The bare allreduce of an array in place, for times."""
        return lambda x: dist.all_reduce(torch.from_numpy(x))

    def hooked(self, name: str, gradients: Sequence[Array]) -> list[tuple[Array, Array]]:
        """By DistributedDataParallel, of a linear function whose gradient is what is told."""
        mine = torch.from_numpy(gradients[self.comm.rank].copy())
        model = DistributedDataParallel(_Told(mine[0]))
        state = hook_state(name)
        model.register_comm_hook(state, HOOKS[name])
        # PowerSGD's hook leaves the first steps uncompressed
        for _ in range(getattr(state, "start_powerSGD_iter", 0)):
            _stepped(model, mine[0])
        means = np.stack([_stepped(model, g) for g in mine])
        owed = getattr(state, "error_dict", {}).get(0, torch.zeros(mine[0].numel()))
        residual = owed.numpy().reshape(mine[0].shape).copy()
        return list(self.comm.allgather((means, residual)))


class _Told(torch.nn.Module):  # type: ignore[misc]
    """The inner product of a parameter with a matrix, which is its gradient."""

    def __init__(self, like: torch.Tensor) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros_like(like))

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        return (self.w * g).sum()


def _stepped(model: torch.nn.Module, g: torch.Tensor) -> Array:
    """The mean gradient after one step."""
    model.zero_grad()
    model(g).backward()
    (w,) = model.parameters()
    mean: Array = w.grad.numpy().copy()
    return mean


def hook_state(name: str) -> Any:
    """What a hook is registered with."""
    if name == "powerSGD_hook":
        return PowerSGDState(
            None, matrix_approximation_rank=COLUMNS, start_powerSGD_iter=2, min_compression_rate=0
        )
    return None


HOOKS: Mapping[str, Any] = {
    "fp16_compress_hook": fp16_compress_hook,
    "powerSGD_hook": powerSGD_hook,
}
"""The hooks that are judged, by name."""
