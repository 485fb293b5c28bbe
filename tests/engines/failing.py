"""Engines that fail on one rank in the second step: `--engine=tests.engines.failing:KindEngine`.

Each way to fail with each of ours: `RaisesDdp`, `SpinsPipeline`, `LeavesOutTensorParallel`, ...
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

from d5test.engines.data_parallel import Ddp, Fsdp2
from d5test.engines.engine import Engine, Minibatch, World
from d5test.engines.model_parallel import Pipeline, TensorParallel

RANK = 1


def raises() -> None:
    raise ZeroDivisionError("on purpose")


def spins() -> None:
    while True:
        pass


def hangs_in_c() -> None:
    """A sleep of C that hears no signal."""
    libc = ctypes.PyDLL(None)
    libc.sigwait((ctypes.c_ulong * 16)(1 << 9), ctypes.byref(ctypes.c_int()))


def leaves_out() -> None:
    """See `failing`: the rank skips the step, and all of its collectives."""


WAYS: Mapping[str, Callable[[], object]] = {
    "Raises": raises,
    "Exits": lambda: os._exit(11),
    "IsKilled": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "IsStopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "Sleeps": lambda: time.sleep(600),
    "Spins": spins,
    "HangsInC": hangs_in_c,
    "SegmentationFault": lambda: ctypes.string_at(0),
    "LeavesOut": leaves_out,
    "OneMore": lambda: dist.all_reduce(torch.ones(3)),
}
"""The ways to fail, by name."""
ENGINES: tuple[type[Engine], ...] = (Ddp, Fsdp2, TensorParallel, Pipeline)


def failing(way: str, kind: type[Engine]) -> type[Engine]:
    """An engine that fails so."""

    class Failing(kind):  # type: ignore[misc, valid-type]
        world: World
        steps = 0

        def step(self, joined: Minibatch) -> float:
            self.steps += 1
            if self.steps == 2 and self.world.rank == RANK:
                WAYS[way]()
                if way == "LeavesOut":
                    return 0.0
            loss: float = super().step(joined)
            return loss

    Failing.__name__ = Failing.__qualname__ = way + kind.__name__
    return Failing


for _way in WAYS:
    for _kind in ENGINES:
        globals()[_way + _kind.__name__] = failing(_way, _kind)
