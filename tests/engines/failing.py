"""Engines that fail on one rank in the second step: `--engine=tests.engines.failing:KindEngine`.

Each way to fail with each of ours: `RaisesDdp`, `SpinsPipeline`, `LeavesOutTensorParallel`, ...
What each is made of is imported when it is asked for.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module

import torch
import torch.distributed as dist

from d5test.backends.base import Unsupported
from d5test.engines.engine import Engine, Minibatch, World

RANK = 1


def raises() -> None:
    raise ZeroDivisionError("on purpose")


def refuses() -> None:
    raise Unsupported("not today")


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
    "Refuses": refuses,
    "Ends": lambda: sys.exit(0),
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
"""The ways to fail, by name. The last is a collective of torch's."""
ENGINES: Mapping[str, str] = {
    "Ddp": "data_parallel", "Fsdp2": "data_parallel", "TensorParallel": "model_parallel",
    "Pipeline": "model_parallel", "Sharding": "jax_parallel", "ShardMap": "jax_parallel",
    "MultiWorker": "tensorflow_parallel", "DataParallel": "keras_parallel",
}  # fmt: skip
"""Classes, and in which module of `d5test.engines` each is."""


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


def __getattr__(name: str) -> type[Engine]:
    for kind, module in ENGINES.items():
        way = name.removesuffix(kind)
        if way in WAYS and way != name:
            return failing(way, vars(import_module(f"d5test.engines.{module}"))[kind])
    raise AttributeError(name)
