"""pytest under MPI: what a run on many ranks needs besides what a run on one has.

    begin       is this a rank, or should it start some?
    join        how a rank joins the others
    quiet       rank 0 alone writes
    ranks       this rank: what it shares with the others, and how they agree
    together    one collection, one outcome a test, one exit status; deadlines
    verdict     one report out of those of all ranks
    lockstep    Hypothesis: the same examples at all ranks; pytest-benchmark: the slowest rank
    supervisor  `--np`: starts mpirun, and starts it again after a crash
    journal     what rank 0 of such an mpirun writes down, and what pytest hears of it

Without mpirun and without `--np`, `begin` and `quiet` are all that is loaded.
"""
