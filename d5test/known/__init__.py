"""Known failures of frameworks: what is known to be wrong, where, since when, and how wrong.

    failure   `KnownFailure`, a row; `Known`, those of one backend, as the judge asks them
    finding   `Finding`, a fault that no case of an operator shows
    reading   rows from a file, a case from its repr
    where     the conditions on cases
    writing   rows to a file, and to docs/found.md

Without pytest and without frameworks.
"""
