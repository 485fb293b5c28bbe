"""Level 3: ranks that run schedules, and what is judged of them: collectives and optimizers.

    traffic        what a rank has sent; what can go wrong on the way
    virtual        all ranks in one process; the order of delivery is drawn
    mpi, gloo      one rank a process, under mpirun; `agreement`: one verdict for all
    communicator   what all of these owe
    allreduce      the operator: the sum of all contributions, at every rank
    optimizers     schedules of training: consistent ones, and those that average parameters
    servers        parameter servers by messages, stale-synchronous and asynchronous
    onesided       a parameter server by one-sided access
    replica        a network on a rank, as one array of parameters
    fleet          replicas on all ranks, trained by an optimizer on their shares of the data
    learning       a recipe, its first steps and all of it; `sequential`: the losses expected
    timed_step     a step on some of the ranks, to be timed; `scaling`: what is recorded of it
    stepwise       optimizers with `step(inputs)` and blocking collectives, for processes
    descent        the operator: several ranks fit a linear model
    checks, probes what must hold of an allreduce, and of an optimizer; `inquiry`, `cases`: on what
    provider       which MPI this is
    guarded        a communicator on which nobody waits for a rank that has left; `pickled`
    watchdog, sentry
                   who tells where a rank stood that does not come back

An algorithm or an optimizer is a schedule (`d5test.reference.collectives`), written once: whoever
adds one writes a generator and a row with its cost, and finds it judged on every communicator.
"""
