"""`mpirun -n 3 python -m tests.distributed.planted_under_mpi ring:last_step_skipped`.

Prints the first fault that any check finds, and aborts: a rank whose message does not fit is the
only one that knows.
"""

from __future__ import annotations

import sys
from itertools import islice

from mpi4py import MPI

from d5test.checks.fault import Fault
from d5test.distributed.cases import table
from d5test.distributed.checks import COLLECTIVE
from d5test.distributed.mpi import Mpi
from tests.distributed import wrong

name, planted = sys.argv[1].split(":")
comm = Mpi(MPI.COMM_WORLD, wrong.planted(name, getattr(wrong, planted)))
for check in COLLECTIVE.values():
    for case in islice(table(check, name, comm.sizes, "float32", 0), 20):
        try:
            check.run(comm, case)
        except Fault as fault:
            print(fault, flush=True)
            MPI.COMM_WORLD.Abort(1)
