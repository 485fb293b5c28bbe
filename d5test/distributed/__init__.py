"""Level 3: ranks that run schedules, and what is judged of them: collectives and optimizers.

    communicator   what a communicator owes; virtual ranks, whose order of delivery is drawn
    mpi, gloo      one rank a process, under mpirun; mpi_calls: MPI's own collectives
    collective     any collective among groups of ranks: where each has its data
    optimizers     schedules of training: consistent, averaging, and with parameter servers
    fleet          networks on all ranks, trained by an optimizer on their shares of the data
    learning       a recipe, its first steps and all of it; the losses that are expected
    alone          what a schedule takes by itself, with no message sent
    scaling        a step on some of the ranks, timed, and what is recorded of it
    stepwise       optimizers with `step(inputs)` and blocking collectives, for processes
    checks, probes what must hold of an allreduce, and of an optimizer that fits a linear model
    movement       what must hold of every collective
    compression, hooked, sparse
                   what must hold of compressors of gradients, of a library's hooks that compress
                   them, and of sums of sparse vectors
    provider       which MPI this is
    guarded        a communicator on which nobody waits for a rank that has left
    watchdog, sentry
                   report where an unresponsive rank is stuck

An algorithm or an optimizer is a schedule (`d5test.reference.collectives`), written once: whoever
adds one writes a generator and a row with its cost, and finds it judged on every communicator.
"""
