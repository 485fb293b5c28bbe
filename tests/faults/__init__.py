"""Faults made on purpose, and which of them are found.

`mutants` changes every reference operator in one place (`formulas` its source, `results` what it
returns, `attributes` what it is asked), and `score` has the checks judge each. `wrong_*` are
backends that are wrong in the ways that real ones were. `python -m tests.faults` prints the score
and writes docs/faults.md.
"""
