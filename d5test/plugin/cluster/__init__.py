"""`--on=dask`: the tests of a suite as tasks of Dask.distributed, which schedules them.

    controller  the pytest that was called: collects, submits, hears, reports
    host        beside a worker of Dask: keeps pytests, and has them run a test
    served      such a pytest: it has collected the same tests, and runs one when it is asked

A test is run by a process below Dask's worker, so that what kills it kills no worker. Without
`--on` only `begin` is loaded.
"""
