"""The frameworks under test: a module or a package each, the only place where it is imported.

`base` says what a backend must do, `updater` what its optimizers must. A line that knows one
framework belongs here; one that runs beside any framework belongs to `d5test.worker`.
"""
