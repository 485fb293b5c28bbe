"""`mpirun -n 2 python -m tests.distributed.hooks_under_mpi`: hooks that are wrong on purpose.

Prints for each what the check finds, and that it finds nothing in those of torch.
"""

from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from d5test.distributed import gloo
from d5test.distributed.checks import table
from d5test.distributed.hooked import HOOKED
from d5test.outcome.fault import Fault

CASES = 6


def divided_twice(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The sum is divided by the number of ranks after it was divided by it."""
    bucket.set_buffer(bucket.buffer() / dist.get_world_size())
    return fp16_compress_hook(group, bucket)


def own_alone(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Nothing is sent."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer().half().float())
    return done


def state(**settings: Any) -> Any:
    """How PowerSGD's hook is set up."""
    usual = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2, "min_compression_rate": 0}
    return PowerSGDState(None, **{**usual, **settings})


PLANTED = {
    "torch's float16": ("hook_narrow", fp16_compress_hook, None),
    "torch's PowerSGD": ("hook_low_rank", powerSGD_hook, state),
    "not narrow": ("hook_narrow", allreduce_hook, None),
    "divided twice": ("hook_narrow", divided_twice, None),
    "own alone": ("hook_narrow", own_alone, None),
    "no feedback": (
        "hook_low_rank", powerSGD_hook, lambda: state(use_error_feedback=False, warm_start=False)
    ),
    "too many columns": (
        "hook_low_rank", powerSGD_hook, lambda: state(matrix_approximation_rank=3)
    ),
    "not compressed": ("hook_low_rank", allreduce_hook, None),
}  # fmt: skip


def found(comm: Any, check: str) -> str:
    """The kind of the first fault, or that there is none."""
    (subject,) = HOOKED[check].subjects
    for case in islice(table(HOOKED[check], subject, comm.sizes, "float32", 0), CASES):
        try:
            HOOKED[check].run(comm, case)
        except Fault as fault:
            return fault.kind
    return "nothing"


with gloo.joined(MPI.COMM_WORLD):
    for name, (check, hook, make) in PLANTED.items():
        (subject,) = HOOKED[check].subjects
        gloo.HOOKS[subject] = hook  # type: ignore[index]
        gloo.hook_state = lambda _, make=make: make() if make else None  # type: ignore[misc]
        kind = found(gloo.Gloo(MPI.COMM_WORLD), check)
        if MPI.COMM_WORLD.rank == 0:
            print(f"{name}: {kind}", flush=True)
