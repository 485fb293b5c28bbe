"""`mpirun -n 3 python -m tests.distributed.planted_under_mpi ring:last_step_skipped:census`.

Prints the first fault that the check finds, and aborts: a rank whose message does not fit is the
only one that knows.
"""

import sys
import time
from itertools import islice

from mpi4py import MPI

from d5test.distributed.checks import COLLECTIVE, table
from d5test.distributed.mpi import Mpi
from d5test.outcome.fault import Fault
from tests.distributed import wrong

name, planted, check = sys.argv[1].split(":")
comm, row = Mpi(MPI.COMM_WORLD, wrong.planted(name, getattr(wrong, planted))), COLLECTIVE[check]
for case in islice(table(row, name, comm.sizes, "float32", 0), 20):
    try:
        row.run(comm, case)
    except Fault as fault:
        print(fault, flush=True)
        time.sleep(1)  # the launcher throws away what it has not yet forwarded
        MPI.COMM_WORLD.Abort(1)
