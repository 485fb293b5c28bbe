"""`mpirun -n 2 python -m mpi4py -m tests.distributed.pending_under_mpi`: an allreduce in flight.

Rank 0 calls it, rank 1 does not. DDP's reducer outlives the process group; where it has the last
reference to the group, PyTorch 2.13 hangs in `~ProcessGroupGloo`: it joins a thread and holds
the GIL, for which the thread waits to free the tensor.
"""

import gc
import time

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d5test.distributed.gloo import joined

comm = MPI.COMM_WORLD
for _ in range(2):
    with joined(comm):
        model = DistributedDataParallel(nn.Linear(3, 2))
        if comm.rank == 0:
            dist.all_reduce(torch.ones(3), async_op=True)
        else:
            time.sleep(1)
    if comm.rank == 1:  # its connections are open until rank 0 has freed its reducer
        time.sleep(2)
    del model
    gc.collect()
print("over", flush=True)
