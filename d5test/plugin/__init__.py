"""The pytest plugin of d5test's suites. Loaded by `-p d5test.plugin`, never by an entry point.

This module lists the parts, which are pytest plugins themselves. Besides, `outcomes` is what came
of the drawn cases, as it travels in reports, and `native` compiles operators.
"""

pytest_plugins = (
    "d5test.plugin.options",  # what the command line accepts
    "d5test.plugin.switches",  # pytest's own switches: they work, or are refused in one line
    "d5test.plugin.selection",  # every name on the command line, resolved before collection
    "d5test.plugin.gating",  # two versions in one session: each test is a verdict
    "d5test.plugin.workers",  # one process for each backend
    "d5test.plugin.parametrise",  # backends x (operator x dtype), and why a cell does not apply
    "d5test.plugin.shards",  # one part of the tests, and a file of what came of each
    "d5test.plugin.replay",  # a run that is reported again
    "d5test.plugin.optimizers",  # optimizers x dtypes, and recipes
    "d5test.plugin.networks",  # networks, and models that others made
    "d5test.plugin.communicators",  # communicators x (algorithms, optimizers) x dtypes
    "d5test.plugin.engines",  # engines x (cases x dtypes)
    "d5test.plugin.budget",  # ends in time
    "d5test.plugin.progress",  # each fault when it is found, and what is under test
    "d5test.plugin.garbage",  # what was imported is not looked through for garbage
    "d5test.plugin.interrupt",  # Ctrl-C pressed twice is pressed once
    "d5test.plugin.summary",  # what was judged and what was not, from reports alone
    "d5test.plugin.record",  # the faults of a run, written as known failures
    "d5test.fixtures.explore",
    "d5test.fixtures.training",
    "d5test.fixtures.network",
    "d5test.fixtures.comm",
    "d5test.fixtures.engines",
    "d5test.plugin.benchmarks",  # what is timed, and the corpus: runs of their own
    "d5test.fixtures.stopwatch",
    "d5test.fixtures.scaling",
    "d5test.plugin.cluster.begin",  # tests that a cluster runs
    "d5test.plugin.ranks.begin",  # pytest under MPI. What is registered last is configured first
)
