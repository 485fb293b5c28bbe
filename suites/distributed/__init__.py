"""Level 3: collectives and distributed optimizers, on virtual ranks or under mpirun."""
