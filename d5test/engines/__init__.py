"""Level 3: engines of parallel training, judged as backends are.

    engine         what an engine owes, and what it is given
    catalogue      ours by name; axes of a mesh
    cases          what is trained, with which optimizer, and how a step is made
    models         the models and the data of a case, in PyTorch
    sequential     the run on one process, honest, noisy, or with a mistake that is usual
    judging        the bars, the faults, and what a case must tell apart
    data_parallel  DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2
    model_parallel tensor parallelism and pipelines
    functional     the models as functions of their parameters, for other frameworks
    jax_parallel   sharded arrays, shard_map

An engine trains a model on all ranks. It is right where it arrives where one process does
on the joined minibatches, as far as rounding lets it, and where its plan was applied.
"""
