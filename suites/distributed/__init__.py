"""Level 3: distributed training: collectives, distributed optimizers. Runs under mpirun."""
