"""The pytest plugin of d5test's suites. Loaded by `-p d5test.plugin`, never by an entry point.

    options       what the command line accepts
    selection     every name on the command line, resolved before anything is collected
    workers       one process for each backend
    parametrise   backends x (operator x dtype), and why a cell does not apply
    communicators communicators x (algorithms, optimizers) x dtypes
    optimizers    optimizers x dtypes
    networks      networks, and models that others made
    collecting    listing tests without importing Hypothesis
    outcomes      what came of the drawn cases, as it travels in reports
    known         known failures: pinned cases, and where drawing is kept away from
    budget        ends in time
    gating        two versions in one session: each test is a verdict
    switches      pytest's own switches: they work, or are refused in one line
    timing        problems to be timed, a run of its own
    visiting      the same in several processes, spread over the run
    corpus        frozen cases to be judged, a run of its own
    ranks         pytest under MPI
    progress      each fault when it is found, and what is under test
    interrupt     Ctrl-C pressed twice is pressed once
    summary       what was judged and what was not, from reports alone

Its parts are pytest plugins themselves: this folder holds no logic.
"""

from __future__ import annotations

pytest_plugins = (
    "d5test.plugin.options",
    "d5test.plugin.switches",
    "d5test.plugin.selection",
    "d5test.plugin.gating",
    "d5test.plugin.workers",
    "d5test.plugin.parametrise",
    "d5test.plugin.optimizers",
    "d5test.plugin.networks",
    "d5test.plugin.communicators",
    "d5test.plugin.collecting",
    "d5test.plugin.budget",
    "d5test.plugin.progress",
    "d5test.plugin.interrupt",
    "d5test.plugin.summary",
    "d5test.plugin.record",
    "d5test.fixtures.backend",
    "d5test.fixtures.explore",
    "d5test.fixtures.optimizer",
    "d5test.fixtures.curve",
    "d5test.fixtures.recipe",
    "d5test.fixtures.network",
    "d5test.fixtures.comm",
    "d5test.fixtures.pace",
    "d5test.fixtures.learner",
    "d5test.fixtures.scaling",
    "d5test.fixtures.communicator",
    "d5test.plugin.timing",
    "d5test.plugin.visiting",
    "d5test.plugin.corpus",
    "d5test.fixtures.corpus",
    "d5test.fixtures.known",
    "d5test.fixtures.stopwatch",
    "d5test.plugin.ranks.begin",  # last: what is registered last is configured first
)
