"""Known failures of frameworks: what is known to be wrong, where, since when, and how wrong.

    failure   `KnownFailure`, a row; `Known`, those of one backend, as the judge asks them
    reading   rows from a file
    where     the conditions on cases
    literal   a case from its repr
    writing   rows to a file
    page      docs/found.md from the rows

Without pytest and without frameworks.
"""
