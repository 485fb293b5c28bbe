"""Level 3: engines of parallel training, judged as backends are.

    engine              what an engine owes, and what it is given
    catalogue           ours by name; axes of a mesh
    cases               what is trained, with which optimizer, and how a step is made
    drawn               trainings that are drawn: model, sizes, values, optimizer, mesh
    models              the models and the data of a case, in PyTorch
    training            a case in a dtype: model, data, optimizer, plan
    sequential          the run on one process, honest, noisy, or with a mistake that is usual
    buffers             running statistics in it
    dropping            what dropout modules have left, and the same in it
    checkpoints         what comes back from a checkpoint, right or with a mistake
    bars                how far an honest engine may be from it
    trained             what a rank has after each step, and what it did
    work                samples and bytes of a rank in a step, counted below the engine
    judging             the faults
    threads             ranks as threads of this process
    timed               a step on the first few ranks, timed
    data_parallel       DistributedDataParallel, PostLocalSGD, ZeroRedundancyOptimizer, FSDP2
    model_parallel      tensor parallelism and pipelines
    sequence_parallel   sequence and loss parallelism
    deepspeed_parallel  DeepSpeed, its ZeRO
    functional          the models as functions of their parameters, for other frameworks
    jax_parallel        sharded arrays, shard_map
    tensorflow_parallel MultiWorkerMirroredStrategy
    keras_parallel      DataParallel and ModelParallel, on jax

An engine trains a model on all ranks. It is right where it arrives where one process does
on the joined minibatches, as far as rounding lets it, and where its plan was applied.
"""
