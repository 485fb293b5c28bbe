"""pytest under MPI: what a run on many ranks needs besides what a run on one has.

    begin       is this a rank, or should it start some?
    join        the plugins of a rank, registered
    ranks       this rank, and what it shares with the others
    together    one collection, one outcome a test, one exit status; deadlines
    agreement   what each rank has to say, told to all
    verdict     one report out of those of all ranks
    lockstep    tests of Hypothesis: the same examples at all ranks
    quiet       rank 0 alone writes
    slowest     pytest-benchmark by the slowest rank
    supervisor  `--np`: starts mpirun, and starts it again after a crash; `mpirun` is one of
                them, `journal` what its rank 0 writes down, `replay` what pytest hears of it,
                `times` what pytest-benchmark does

Without mpirun and without `--np`, `begin` and what it imports of `journal` are all that is loaded.
"""
