"""Level 0: operators. Each module is one check, run on cases that are drawn for each operator."""
