"""Level 2: training: optimizers, datasets, convergence, recipes."""
