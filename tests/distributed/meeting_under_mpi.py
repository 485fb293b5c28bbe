"""`mpirun -n 2 python -m tests.distributed.meeting_under_mpi`: an allreduce of gloo.

Each rank takes its machine for another one than the other rank's, by two names that lead here.
"""

import socket

import torch
import torch.distributed as dist
from mpi4py import MPI

from d5test.distributed.gloo import joined

RANK = MPI.COMM_WORLD.rank
socket.gethostname = lambda: ("localhost", "127.0.0.1")[RANK]

with joined(MPI.COMM_WORLD):
    total = torch.tensor([1.0 + RANK])
    dist.all_reduce(total)
    print(float(total), flush=True)
